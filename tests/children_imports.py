"""What the server of :mod:`tests.children` imports once for all its children."""

import rlbhpc.cli.sampling
import rlbhpc.cli.train
import rlbhpc.engines.hf_engine
import rlbhpc.train.loop
import rlbhpc.train.prepare  # noqa: F401
