"""SFT and RL on DeepSpeed: one readable loop, one small file per algorithm and per reward."""

import rlbhpc.engines  # noqa: F401  Before PyTorch: it settles how threads wait.
