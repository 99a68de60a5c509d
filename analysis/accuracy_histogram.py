"""Problems by accuracy before and after training, in the study's twelve bins.

Example: python analysis/accuracy_histogram.py runs/math -o figures
"""

from rlbhpc.report.aspects.coverage import accuracy_charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, accuracy_charts)
