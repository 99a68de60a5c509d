"""A state that was saved by some ranks goes on on fewer and on more, whatever the ZeRO stage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlbhpc.engines.tiny import make_tiny_model
from tests.train.support import run_case

pytestmark = [pytest.mark.engine, pytest.mark.slow]

# ZeRO stage and type of the weights, and how far 1e-2 as a rate of learning may part the weights.
CASES = {
    "0-float32": 1e-6,
    "2-float32": 1e-6,
    "3-float32": 1e-6,
    "3-bfloat16": 1e-2,
    "2-float32-lora": 1e-6,
    "3-float32-lora": 1e-6,
}


def go_on(model: Path, folder: Path, ranks: int, moves: bool = False) -> None:
    done = run_case(ranks, "reshard_case.py", model, folder, *CASES)
    assert "Universal" not in done.stdout
    assert ("ranks together" in done.stderr) == moves


A_COLLECTIVE_STILL_LET_GO_OF = """
import ctypes, hashlib, os, threading
from pathlib import Path
from rlbhpc.train.deepspeed_engine import init_ranks

init_ranks()

def names():
    return [thread.read_text().strip() for thread in Path("/proc/self/task").glob("*/comm")]

while "pt_gloo_runloop" not in names():  # a thread gives itself its name when it gets a core
    os.sched_yield()
begun = threading.Event()

def let_go():
    ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop")  # its name in the system's eyes
    begun.set()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)  # leaves Python's lock to others
    os.write(1, b"let go")

threading.Thread(target=let_go, daemon=True).start()
begun.wait()
"""


def printed_by(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        check=True, capture_output=True, text=True, timeout=100,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    ).stdout  # fmt: skip


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads' states are Linux's")
def test_a_rank_does_not_end_before_its_threads_rest() -> None:
    assert printed_by(A_COLLECTIVE_STILL_LET_GO_OF) == "let go"


BEGUN_IN_ANOTHER_ENVIRONMENT = """
import os
from rlbhpc.train.deepspeed_engine import init_ranks

before = dict(os.environ)
init_ranks()
os.environ.clear()
os.environ.update(before)  # as submitit does at the end of a job in this process
init_ranks()
print(os.environ["LOCAL_RANK"])
"""


def test_a_world_of_one_outlives_the_environment_that_it_began_in() -> None:
    assert printed_by(BEGUN_IN_ANOTHER_ENVIRONMENT) == "0\n"


A_RANK_OF_A_LAUNCHER = """
import os
import torch
import torch.distributed as dist
from rlbhpc.train.deepspeed_engine import init_ranks

launched = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "3", "MASTER_ADDR": "127.0.0.1"}
os.environ.update(launched, MASTER_PORT="0")
init_ranks()
print({name: os.environ[name] for name in launched} == launched)
print(dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout)
"""


def test_a_rank_of_a_launcher_stays_what_it_is_and_waits_for_the_longest_rollout() -> None:
    assert printed_by(A_RANK_OF_A_LAUNCHER) == "True\n12:00:00\n"


@pytest.mark.timeout(600)
def test_no_rank_but_the_reader_of_the_files_holds_more_than_its_share_and_a_layer(
    tmp_path: Path,
) -> None:
    shape = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8}
    model = make_tiny_model(tmp_path / "model", num_hidden_layers=6, **shape)
    # Freed memory goes back at once, so that the peak is what was held.
    run_case(3, "divided_case.py", model, tmp_path, MALLOC_MMAP_THRESHOLD_="65536")
    for rank in range(3):
        held = json.loads((tmp_path / f"{rank}.json").read_text())
        assert held["share"] < 1.05 * held["whole"] / 3
        assert held["same"] and held["moved"]
        if rank:
            # A layer's three largest weights, and buffers of the library.
            assert held["grown"] < held["share"] + 3 * held["largest"] + (32 << 20)


@pytest.mark.by_turns(3)
@pytest.mark.timeout(900)
def test_a_run_goes_on_on_another_number_of_ranks(tmp_path: Path) -> None:
    # Without biases: turned by position alone, that of a key has a gradient of little but rounding,
    # and Adam moves it as far as any other weight.
    model = make_tiny_model(tmp_path / "tiny", "llama", hidden_size=32)
    always, moved = tmp_path / "always-two", tmp_path / "two-one-two"
    go_on(model, always, ranks=2)
    shutil.copytree(always, moved)
    for ranks in (1, 2):
        go_on(model, moved, ranks, moves=True)
        go_on(model, always, ranks=2)
    for case, tolerance in CASES.items():
        for step in (4, 6):
            expected, found = (
                torch.load(folder / case / f"after-{step}.pt") for folder in (always, moved)
            )
            assert (expected - found).abs().max() < tolerance, (case, step)
        assert not torch.equal(expected, torch.load(moved / case / "after-2.pt"))
        # A state is as it was before it was read.
        assert not list(moved.rglob("*universal*"))
