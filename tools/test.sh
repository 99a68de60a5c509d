#!/usr/bin/env bash
# The tests. What is quick runs on all cores; of what loads engines each test goes to whichever of
# two processes is free; clusters' tests run one at a time. All parts run, also after one that failed.
#   tools/test.sh core   what a contributor runs: all quick tests, and a few that guard the most
#   tools/test.sh all    everything but the cluster's, and settings of the processor's dispatch
set -euo pipefail
cd "$(dirname "$0")/.."

size=$1
shift
# As many processes as cores: a second thread in each would wait for a core, spinning.
export OMP_NUM_THREADS=1
# The processes that tests start load the package hundreds of times: compiled once.
unset PYTHONDONTWRITEBYTECODE

failed=()
part() {
    local name=$1 code=0
    shift
    "$@" || code=$?
    # No tests selected (exit 5) is not a failure of a part.
    [ $code -eq 0 ] || [ $code -eq 5 ] || failed+=("$name (exit $code)")
}

if [ "$size" = core ]; then
    part quick python -m pytest -n auto --dist worksteal \
        -m 'not engine and not cluster and (core or not slow)' "$@"
    part engines python -m pytest -n 2 --dist loadgroup -m 'engine and core' "$@"
else
    part quick python -m pytest -n auto --dist worksteal -m 'not engine and not cluster' "$@"
    part engines python -m pytest -n 2 --dist loadgroup -m 'engine and not torchvision' "$@"
    # Not with the others, because what it adds to the path would change which image code they load.
    torchvision=$(python -c 'import sys; print(sys.prefix)')/torchvision
    part torchvision env PYTHONPATH="$torchvision${PYTHONPATH:+:$PYTHONPATH}" \
        python -m pytest -m torchvision "$@"
    [ $# -gt 0 ] || part dispatch python -m tools.dispatch ci
fi
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
