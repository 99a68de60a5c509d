"""pass@k at equal cost: what a budget of response tokens buys from each arm.

Example: python analysis/budget.py runs/math -o figures
"""

from rlbhpc.report.aspects.responses import BUDGET
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, BUDGET.charts)
