#!/usr/bin/env bash
# The tests. What is quick runs on all cores; of what loads engines each test goes to whichever of
# two processes is free; clusters' tests run one at a time.
#   tools/test.sh core   what a contributor runs: all quick tests, and a few that guard the most
#   tools/test.sh all    everything but the cluster's
set -euo pipefail
cd "$(dirname "$0")/.."

part=$1
shift
# As many processes as cores: a second thread in each would wait for a core, spinning.
export OMP_NUM_THREADS=1
# The processes that tests start load the package hundreds of times: compiled once.
unset PYTHONDONTWRITEBYTECODE
# No tests selected (exit 5) is not a failure of a part.
if [ "$part" = core ]; then
    python -m pytest -n auto --dist worksteal -m 'not engine and not cluster and (core or not slow)' "$@"
    python -m pytest -n 2 --dist loadgroup -m 'engine and core' "$@" || [ $? -eq 5 ]
    exit
fi
python -m pytest -n auto --dist worksteal -m 'not engine and not cluster' "$@"
python -m pytest -n 2 --dist loadgroup -m 'engine and not torchvision' "$@" || [ $? -eq 5 ]
# Last, because what it adds to the path would change which image code all others load.
PYTHONPATH=$(python -c 'import sys; print(sys.prefix)')/torchvision${PYTHONPATH:+:$PYTHONPATH} \
    python -m pytest -m 'torchvision' "$@" || [ $? -eq 5 ]
