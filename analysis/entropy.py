"""Entropy and length of responses over training steps, and pass@K against entropy.

Example: python analysis/entropy.py runs/math -o figures
"""

from rlbhpc.report.aspects.responses import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
