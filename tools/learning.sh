#!/usr/bin/env bash
# The study behind docs/learning.md: every way to train, seed after seed, and Absolute Zero on
# programs: tools/learning.sh 0 1 2. Killed at any moment, the same command goes on; the page is
# written from the seeds that are finished.
set -euo pipefail
cd "$(dirname "$0")/.."
# A shell that has activated no environment gets that of `make install`.
command -v rlbhpc > /dev/null || PATH="$PWD/.venv/bin:$PATH"

step() {
    local code=0
    rlbhpc "$@" || code=$?
    # Exit code 4 says that there was nothing to do.
    [ $code -eq 0 ] || [ $code -eq 4 ] || exit $code
}

# The arms of a study that are one seed of a recipe, in the study's order.
arms() { grep -oP "^  \K[^ ]+(?=: \{model: )" "$1" | grep -vx base | sed "s/\$/-s$2/"; }

step train configs/quickstart.yaml
lessons=runs/learning-programs/lessons.jsonl
[ -f $lessons ] || python -m tools.program_traces $lessons
step train configs/learning-programs.yaml base
for seed in "$@"; do
    for study in learning learning-programs; do
        mapfile -t names < <(arms configs/$study.yaml "$seed")
        step train configs/$study.yaml "${names[@]}"
        step sample configs/$study.yaml --arm base "${names[@]/#/--arm=}"
    done
done
rlbhpc compact runs/learning
rlbhpc compact runs/learning-programs
python -m tools.learning runs/learning runs/learning-programs
