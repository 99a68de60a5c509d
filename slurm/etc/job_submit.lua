-- As sites have it: words of their own about each job, and jobs that are refused. What it says is in
-- two files that a test writes: `say` is told to whoever submits, `refuse` refuses with its words.
local function words_of(name)
    local file = io.open("@STATE@/etc/" .. name)
    if file == nil then
        return nil
    end
    local words = file:read("*a")
    file:close()
    return words
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    local told = words_of("say")
    if told ~= nil then
        slurm.log_user("%s", told)
    end
    local refused = words_of("refuse")
    if refused ~= nil then
        slurm.log_user("%s", refused)
        return slurm.ERROR
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
