"""maj@k beside pass@k: what a majority vote finds of what is there to be found.

Example: python analysis/majority.py runs/math -o figures
"""

from rlbhpc.report.aspects.votes import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
