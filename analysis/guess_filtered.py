"""pass@k without the problems that the base answers now and then without reasoning.

The run needs an arm whose prompt forbids reasoning (`prompt: no-think`); a problem that it answers
rarely but not never is guessed at large k, and is left out of all curves.

Example: python analysis/guess_filtered.py runs/math -o figures
"""

from rlbhpc.report.aspects.guesses import charts
from rlbhpc.report.script import main

if __name__ == "__main__":
    main(__doc__, charts)
