"""pass@k curves of every line of checkpoints, and its pass@1 and pass@K over steps.

Example: python analysis/checkpoints.py runs/math -o figures
"""

from rlbhpc.report.aspects.checkpoints import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
