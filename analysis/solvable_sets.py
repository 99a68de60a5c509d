"""Problems by the exact set of arms that solve them, with the ids in the CSV.

Example: python analysis/solvable_sets.py runs/math -o figures
"""

from rlbhpc.report.aspects.solvable import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
