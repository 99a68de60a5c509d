"""Problems by accuracy before and after training, in the study's twelve bins.

Example: python analysis/accuracy_histogram.py runs/math -o figures
"""

from rlbhpc.report.aspects.accuracy import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
