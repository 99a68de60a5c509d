"""One thread for the linear algebra of a command, unless the user says otherwise.

Import this before anything that loads NumPy. A report multiplies thousands of small matrices: on
two processors OpenBLAS's threads double the processor time of a report and shorten nothing, and on
a login node they are everybody's.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
