"""Problems solved by both, by one and by neither, of all comparisons of a run.

Example: python analysis/coverage.py runs/math -o figures
"""

from rlbhpc.report.aspects.coverage import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
