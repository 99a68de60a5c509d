#!/usr/bin/env bash
# The quickstart with other seeds throughout: other weights, traces, problems, rollouts and samples.
# One folder per seed under runs/seeds: tools/quickstart_seeds.sh 1 2 3 4
set -euo pipefail
cd "$(dirname "$0")/.."

for seed in "$@"; do
    sets=("seed=$seed" "output=runs/seeds/$seed")
    # The teacher's traces must be others than those of pre-training.
    sets+=("recipes.pretraining.seed=$((2 * 10#$seed))" "recipes.teaching.seed=$((2 * 10#$seed + 1))")
    sets+=("recipes.grpo.seed=$seed")
    for problems in train rl test; do
        sets+=("problem_sets.countdown-$problems.seed=$seed")
    done
    tools/quickstart.sh "${sets[@]/#/--set=}"
done
