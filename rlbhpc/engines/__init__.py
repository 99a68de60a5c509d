"""Prompts in, tokens with log-probs out."""

import os

# Both are read once, when PyTorch and transformers are loaded; what the user has set stays.
# A waiting thread that spins starves the one it waits for wherever cores are shared, and costs a
# step of training up to twenty times its time there.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Bars for the loading of weights would tear the one line of progress apart.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
