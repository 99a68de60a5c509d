"""Algorithms side by side: pass@1, pass@K and sampling-efficiency gap of every trained arm.

Example: python analysis/algorithms.py runs/math -o figures
"""

from rlbhpc.report.aspects.algorithms import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
