#!/usr/bin/env bash
# Resolve pyproject.toml in a fresh environment and write the exact versions, host-free.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3.11}" -m venv "$scratch/venv"
pip() { "$scratch/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
tools/install_torch.sh "$scratch/venv/bin/python"
pip install '.[cpu,dev]'
pip uninstall --yes torchvision torchaudio torchcodec
{
    echo '# Versions that were tested together. Written by `make constraints`.'
    # A local build tag (+cpu) names one index; direct references name a path.
    pip freeze --exclude rlbhpc | grep -v ' @ ' | sed 's/+cpu$//' | LC_ALL=C sort -f
} >"$scratch/constraints.txt"
mv "$scratch/constraints.txt" constraints.txt
