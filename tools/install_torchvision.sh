#!/usr/bin/env bash
# Put torchvision into a folder of its own for the tests in which vLLM shows images:
# tools/install_torchvision.sh PYTHON FOLDER
#
# The build on PyPI belongs to the CUDA torch: its compiled operators do not load beside the CPU
# one, and `import transformers` breaks where it is installed. vLLM and transformers use its Python
# part alone, which imports once the module that describes those operators is left out.
set -euo pipefail

python=$1 folder=$2
[ -e "$folder/torchvision/__init__.py" ] && exit 0
rm -rf "$folder.part"
# The release that belongs to the torch that pyproject.toml pins.
"$python" -m pip --quiet --disable-pip-version-check install --no-deps --target "$folder.part" \
    torchvision==0.28.0
sed -i '/^    _meta_registrations,$/d' "$folder.part/torchvision/__init__.py"
rm -f "$folder.part"/torchvision/*.so
PYTHONPATH=$folder.part "$python" -c 'import torchvision.transforms.v2'
mv "$folder.part" "$folder"
