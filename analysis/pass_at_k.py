"""pass@k curves of every problem set: base dashed, trained solid, with intervals.

Of a line of checkpoints the last one is drawn, with --every-checkpoint all of them.

Example: python analysis/pass_at_k.py runs/math -o figures
"""

from rlbhpc.report.aspects.pass_at_k import charts, every_checkpoint
from rlbhpc.report.paper import arguments, draw_runs

if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--every-checkpoint", action="store_true", help="not the last one alone")
    options = parser.parse_args()
    draw_runs(options, every_checkpoint if options.every_checkpoint else charts)
