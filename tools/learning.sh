#!/usr/bin/env bash
# Train the distilled model of the quickstart with every algorithm, a seed each time, and write
# docs/learning.md: tools/learning.sh 0 1 2. Killed at any moment, the same command goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
# A shell that has activated no environment gets that of `make install`.
command -v rlbhpc > /dev/null || PATH="$PWD/.venv/bin:$PATH"

study=configs/learning.yaml
for seed in "$@"; do
    sets=(--set "output=runs/learning/$seed" --set "seed=$seed")
    for recipe in ppo critic grpo dr_grpo reinforce++ reinforce++_baseline rloo remax dapo maxrl; do
        sets+=(--set "recipes.$recipe.seed=$seed")
    done
    for verb in train sample; do
        code=0
        rlbhpc $verb $study "${sets[@]}" || code=$?
        # Exit code 4 says that there was nothing to do.
        [ $code -eq 0 ] || [ $code -eq 4 ] || exit $code
    done
    rlbhpc compact "runs/learning/$seed"
done
python -m tools.learning "${@/#/runs/learning/}"
