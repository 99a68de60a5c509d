#!/usr/bin/env bash
# The CPU build of torch, of the version that pyproject.toml pins: tools/install_torch.sh PYTHON
#
# Plain `pip install torch` takes the CUDA build on Linux: several GB, and with a Triton that is not
# the one of the CPU stack. The CPU build has a name of its own, so an index or a folder of the site's
# that has it is asked first, and PyTorch's index otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(grep -o 'torch==[0-9.]*' pyproject.toml | head -1)
[ "$(uname -s)" != Linux ] || wanted=$wanted+cpu
pip() { "$python" -m pip --quiet --disable-pip-version-check install --no-deps "$@"; }
python=$1

pip "$wanted" 2>/dev/null || pip --index-url https://download.pytorch.org/whl/cpu "$wanted" || {
    echo "install: $wanted is neither on this site's package index nor on PyTorch's; download it" \
        "where there is a network and name its folder in PIP_FIND_LINKS" >&2
    exit 1
}
