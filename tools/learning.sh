#!/usr/bin/env bash
# The study behind docs/learning.md: every way to train, seed after seed, and Absolute Zero on
# programs: tools/learning.sh 0 1 2. As many arms at a time as there are cores. Killed at any moment,
# the same command goes on; the page is written from the seeds that are finished.
set -euo pipefail
cd "$(dirname "$0")/.."
# A shell that has activated no environment gets that of `make install`.
command -v rlbhpc > /dev/null || PATH="$PWD/.venv/bin:$PATH"
export OMP_NUM_THREADS=1

step() {
    local code=0
    rlbhpc "$@" || code=$?
    # Exit code 4 says that there was nothing to do.
    [ $code -eq 0 ] || [ $code -eq 4 ] || exit $code
}

# Train the model of an arm, and sample it: a study and the arm's name.
arm() {
    [ "$2" = base ] || step train "configs/$1.yaml" "$2"
    step sample "configs/$1.yaml" --arm "$2"
}
export -f step arm

# The arms of a study for some seeds, in the study's order: its name and the seeds.
arms() {
    echo base
    for seed in "${@:2}"; do
        grep -oP "^  \K[^ ]+(?=: \{model: )" "configs/$1.yaml" | grep -vx base | sed "s/\$/-s$seed/"
    done
}

step train configs/quickstart.yaml
lessons=runs/learning-programs/lessons.jsonl
[ -f $lessons ] || python -m tools.program_traces $lessons
step train configs/learning-programs.yaml base
for study in learning learning-programs; do
    arms $study "$@" | xargs -P "$(nproc)" -I NAME bash -ec 'arm "$@"' _ $study NAME
    step compact runs/$study
done
lessons=runs/calculator/lessons.jsonl
[ -f $lessons ] || python -m tools.calculator_traces $lessons
step train configs/calculator.yaml
step sample configs/calculator.yaml
step compact runs/calculator
python -m tools.learning runs/learning runs/learning-programs runs/calculator
