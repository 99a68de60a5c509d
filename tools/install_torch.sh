#!/usr/bin/env bash
# The CPU build of torch, of the version that pyproject.toml pins: tools/install_torch.sh PYTHON
#
# Plain `pip install torch` takes the CUDA build on Linux: several GB, and with a Triton that is not
# the one of the CPU stack. The CPU build has a name of its own. An index or a folder of the site's
# that has it is asked first; otherwise uv is, which knows where PyTorch keeps its CPU builds.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(grep -o 'torch==[0-9.]*' pyproject.toml | head -1)
[ "$(uname -s)" != Linux ] || wanted=$wanted+cpu
python=$1
pip() { "$python" -m pip --quiet --disable-pip-version-check install "$@"; }

if pip --no-deps "$wanted" 2>/dev/null; then exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
pip --target "$scratch" uv
"$scratch/bin/uv" pip install --quiet --python "$python" --torch-backend cpu --no-deps "$wanted" || {
    echo "install: $wanted is neither on this site's package index nor where PyTorch keeps it;" \
        "download it where there is a network and name its folder in PIP_FIND_LINKS" >&2
    exit 1
}
