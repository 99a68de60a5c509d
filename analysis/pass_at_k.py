"""pass@k curves of every problem set: base dashed, trained solid, with intervals.

Example: python analysis/pass_at_k.py runs/math -o figures
"""

from rlbhpc.report.aspects.pass_at_k import charts
from rlbhpc.report.paper import main

if __name__ == "__main__":
    main(__doc__, charts)
