"""Perplexity over training: median per problem, mean over problems.

Example: python analysis/perplexity_over_steps.py runs/math -o figures
"""

from rlbhpc.report.aspects.perplexity import step_charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, step_charts)
