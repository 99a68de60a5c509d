#!/bin/bash
# Submits the jobs of this launch, each after those that it waits for. Run it again and it goes on
# with what was not submitted: the ids of what was are in the file `submitted`.
set -u
cd "$(dirname "$0")" || exit 64
mkdir -p logs
touch submitted
# Variables of the shell would win over what the scripts say.
unset SBATCH_ARRAY_INX SBATCH_JOB_NAME SBATCH_NO_REQUEUE SBATCH_OPEN_MODE SBATCH_OUTPUT \
    SBATCH_REQUEUE SBATCH_SIGNAL SBATCH_WAIT

id_of() { awk -v name="$1" '$1 == name {id = $2} END {print id}' submitted; }

# The id in an answer of sbatch --parsable, whatever else a site prints with it.
id_in() { printf '%s\n' "$1" | sed -n 's/^\([0-9][0-9]*\)\(;[^ ]*\)\{0,1\}$/\1/p' | tail -n 1; }

# Submit NAME.sbatch after other jobs have ended, well or not.
submit() {
    local name=$1 pause id answer code other after=""
    shift
    if [ -n "$(id_of "$name")" ]; then
        echo "$name: $(id_of "$name"), submitted before"
        return
    fi
    for other in "$@"; do after="$after:$(id_of "$other")"; done
    for pause in 5 15 45 120 300 0; do
        answer=$(sbatch --parsable ${after:+"--dependency=afterany$after"} "$name.sbatch" 2>&1)
        code=$?
        id=$(id_in "$answer")
        # An answer that came too late: the job may be in the queue all the same.
        [ "$code" = 0 ] && [ -n "$id" ] ||
            id=$(squeue --me --noheader --name="$prefix-$name" --format=%F 2>/dev/null |
                sort -u | tail -n 1)
        if [ -n "$id" ]; then
            echo "$name $id" >>submitted
            echo "$name: $id"
            return
        fi
        echo "$name: $answer" >&2
        case $answer in
        *[Tt]"imed out"* | *"Unable to contact"* | *"ry again"* | *"emporarily"* | *"onnection"*) ;;
        *"ependency"*)
            # What Slurm has forgotten has ended long ago.
            after=""
            for other in "$@"; do
                squeue --noheader --job="$(id_of "$other")" >/dev/null 2>&1 &&
                    after="$after:$(id_of "$other")"
            done
            ;;
        *"MaxSubmit"* | *"ubmit limit"* | *"QOS"*)
            echo "$name: the queue takes fewer jobs, or not with this qos. Write the launch again" \
                "with --width, or set max_jobs in the cluster's file; or run this script again" \
                "when jobs have ended." >&2
            exit 75
            ;;
        *)
            echo "$name: refused; change $name.sbatch or the cluster's file, then run this" \
                "script again" >&2
            exit 64
            ;;
        esac
        [ "$pause" = 0 ] || sleep "$pause"
    done
    echo "$name: Slurm does not answer; run this script again later" >&2
    exit 75
}

