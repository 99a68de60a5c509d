"""Perplexity of stored texts under the models that scored them: the study's conditions.

Example: python analysis/perplexity.py runs/math -o figures
"""

from rlbhpc.report.aspects.perplexity import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
