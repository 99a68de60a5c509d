"""Difference curves of several arms against one, in one panel: ablations and algorithms.

Example: python analysis/ablations.py runs/math -o figures --compare grpo:kl --compare grpo:n32
"""

from rlbhpc.report.aspects.difference import ablations
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, ablations)
