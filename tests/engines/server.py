"""`vllm serve` on loopback, for the tests that ask a server as a user's study does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@contextlib.contextmanager
def serving(model: Path, folder: Path, key: str, *names: str) -> Iterator[int]:
    """Port of a server of ``model`` under ``names``; it is ended with all that it started."""
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(chosen), "--served-model-name", *names]
    command += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", "32"]
    command += ["--chat-template", str(template), "--generation-config", "vllm"]
    environment = os.environ | {
        "VLLM_API_KEY": key,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "auto",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        # vLLM's own sampler would compile a function at its first request, with a C++ compiler.
        "TORCH_COMPILE_DISABLE": "1",
    }
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        for _ in range(2400):
            if server.poll() is not None:
                pytest.fail(f"the server ended:\n{(folder / 'log').read_text()[-3000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", chosen)) == 0:
                    break
            time.sleep(0.1)
        yield chosen
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
