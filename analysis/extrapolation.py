"""pass@k up to ten times the samples, with the band of three models and a held-out check.

Example: python analysis/extrapolation.py runs/math -o figures
"""

from rlbhpc.report.aspects.beyond import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
