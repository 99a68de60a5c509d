#!/bin/bash
# Submits the jobs of this launch, each after those that it waits for. Run it again and it goes on
# with what was not submitted: the ids of what was are in the file `submitted`.
cd "$(dirname "$0")" && exec /venv/bin/python -m rlbhpc.launch.send
