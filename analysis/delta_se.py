"""The sampling-efficiency gap of all comparisons of a run, with intervals.

Example: python analysis/delta_se.py runs/math -o figures
"""

from rlbhpc.report.aspects.difference import gap_charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, gap_charts)
