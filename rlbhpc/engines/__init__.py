"""Prompts in, tokens with log-probs out."""

import os

# All are read once, by libraries when they are first used; what the user has set stays.
SETTINGS = {
    # How often a waiting OpenMP thread looks again before it sleeps. Much more, and it starves the
    # one it waits for wherever cores are shared; none at all, and waking a core that went idle
    # costs a training step of a small model as much as its work (180 ms instead of 96 on a virtual
    # machine).
    "GOMP_SPINCOUNT": "1000",
    # How many prepared products oneDNN keeps, and how many PyTorch keeps of them: one is of about
    # 1 MiB and for one number of rows, of which a training step of uneven lengths brings dozens
    # that no other step has. Of the 1,024 that both keep if nobody says less, it took 2.5 GiB.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32",
    "LRU_CACHE_CAPACITY": "32",
    # Bars for the loading of weights would tear the one line of progress apart.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)
