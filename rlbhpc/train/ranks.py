"""torchrun that ends as its ranks do: ``python -m rlbhpc.train.ranks … -m rlbhpc train …``.

torchrun ends with 1 whatever its ranks ended with, so that a job that was warned and saved looks
like one that crashed. It also kills its ranks 30 seconds after it was warned itself; whoever warns
a job ends it in time, and saving a large state takes longer than that.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from rlbhpc.errors import DONE, TRY_AGAIN

PATIENCE = 3600  # seconds from a warning to the end; who warned ends the ranks long before


def main(words: Sequence[str]) -> int:
    """Run ranks as torchrun does; the code of the rank that ended first, of those that failed.

    ``words`` are torchrun's command-line arguments. A negative exit code is the signal that killed
    a rank; shells write it as 128 plus its number. ``TRY_AGAIN`` is the exit code that asks for the
    job to be run again.
    """
    # Somebody's `scancel --signal=USR1` reaches every process of a step; the ranks know what to do.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(PATIENCE))
    try:
        run(parse_args(list(words)))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        code = int(failure.exitcode)
        return code if code >= 0 else 128 - code
    except SignalException:
        # Warned: the ranks have saved, or had no time to. Either way the job is to be run again.
        return TRY_AGAIN
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
