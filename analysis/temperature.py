"""Base and trained model at all temperatures, and each at its best one for every k.

Example: python analysis/temperature.py runs/math -o figures
"""

from rlbhpc.report.aspects.temperature import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
