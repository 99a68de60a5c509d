"""Prompts in, tokens with log-probs out."""

import os

# Both are read once, when PyTorch and transformers are loaded; what the user has set stays.
# How often a waiting OpenMP thread looks again before it sleeps. Much more, and it starves the one
# it waits for wherever cores are shared; none at all, and waking a core that went idle costs a
# training step of a small model as much as its work (180 ms instead of 96 on a virtual machine).
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# Bars for the loading of weights would tear the one line of progress apart.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
