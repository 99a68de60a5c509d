"""Trained minus base pass@k of every comparison, with both bands and the crossing set.

Example: python analysis/difference.py runs/math -o figures
"""

from rlbhpc.report.aspects.difference import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
