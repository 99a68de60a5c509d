#!/usr/bin/env bash
# The whole suite: what is quick runs on all cores, what loads engines or clusters one at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

python -m pytest -n auto -m 'not engine and not cluster' "$@"
# No tests selected (exit 5) is not a failure of these parts.
python -m pytest -m 'engine and not torchvision' "$@" || [ $? -eq 5 ]
# Last, because what it adds to the path would change which image code all others load.
PYTHONPATH=$(python -c 'import sys; print(sys.prefix)')/torchvision${PYTHONPATH:+:$PYTHONPATH} \
    python -m pytest -m 'torchvision' "$@" || [ $? -eq 5 ]
