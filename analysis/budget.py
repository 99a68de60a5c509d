"""pass@k at equal cost: what a budget of response tokens, or of device-hours, buys from each arm.

Example: python analysis/budget.py runs/math -o figures
"""

from rlbhpc.report.aspects.budget import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
