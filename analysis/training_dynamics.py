"""Reward, length, entropy, KL, clipping and gradient norm over training, all models.

Example: python analysis/training_dynamics.py runs/math -o figures
"""

from rlbhpc.report.aspects.training import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
