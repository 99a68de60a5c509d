"""Staging against a small hub on the loopback, and what happens when there is none."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlbhpc.errors import TRY_AGAIN, USAGE, UserError
from rlbhpc.problems import stage as staging
from rlbhpc.problems.registry import SETS, load_set
from rlbhpc.problems.sets import questions
from tests.problems import shapes
from tests.problems.shapes import SHAPES

DOCS = Path(__file__).parents[2] / "docs"
SHA = "5" * 40
DEAD = "http://127.0.0.1:9"  # the discard port: nobody answers


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub's protocol as fetching a data set takes."""

    sets: ClassVar[tuple[str, ...]] = ("MATH-500",)
    files: ClassVar[dict[str, bytes]]
    asked: ClassVar[list[str]]
    #: Of every file, where the hub names one that it does not send.
    hash: ClassVar[str] = ""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        if path.startswith("/api/datasets/") and path.split("/")[4] in self.sets:
            names = [
                {
                    "rfilename": name,
                    "size": len(body),
                    "lfs": {
                        "size": len(body),
                        "sha256": self.hash or hashlib.sha256(body).hexdigest(),
                        "pointerSize": 9,
                    },
                }
                for name, body in self.files.items()
            ]
            self._send(json.dumps({"id": "x", "sha": SHA, "siblings": names}).encode())
        elif path.startswith("/api/models/o/m"):
            names = [{"rfilename": name} for name in ("config.json", "w.safetensors", "big.bin")]
            self._send(json.dumps({"id": "o/m", "sha": SHA, "siblings": names}).encode())
        elif (name := path.rpartition(f"/{SHA}/")[2]) in self.files:
            self._send(self.files[name])
        elif path.startswith("/plain/") and path[7:] in self.files:
            self._send(self.files[path[7:]])
        else:
            self.send_error(404)

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, type[Hub]]]:
    (tmp_path / "made").mkdir()
    body = shapes.jsonl(SHAPES["math500"][0], tmp_path / "made").read_bytes()

    class ThisHub(Hub):
        files: ClassVar = {"test.jsonl": body, "README.md": b"not data"}
        asked: ClassVar = []

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ThisHub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", ThisHub
    server.shutdown()
    thread.join()
    server.server_close()


def rlbhpc(endpoint: str, *args: object) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-m", "rlbhpc", "stage", *map(str, args)],
        env={**clean, "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        capture_output=True,
        text=True,
    )


def test_a_set_is_fetched_once_and_checked_after(
    hub: tuple[str, type[Hub]], tmp_path: Path
) -> None:
    endpoint, server = hub
    to = tmp_path / "data"
    (to / "math500").mkdir(parents=True)
    (to / "math500" / "a1b2.partial").write_text("what a killed stage was writing")
    first = rlbhpc(endpoint, "math500", "--to", to, "--json")
    assert first.returncode == 0, first.stderr
    manifest = json.loads(first.stdout)["math500"]
    assert manifest["source"] == {"repo": "HuggingFaceH4/MATH-500", "revision": SHA}
    body = server.files["test.jsonl"]
    assert manifest["files"] == {
        "test.jsonl": {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    }
    assert manifest["problems"]["all"]["count"] == 1
    assert json.loads((to / "math500" / "manifest.json").read_text()) == manifest
    assert load_set("math500", to / "math500")[0].id == "math500/test/precalculus/807.json"

    asked = len(server.asked)
    again = rlbhpc(endpoint, "math500", "--to", to, "--revision", SHA[:7])
    assert again.returncode == 4 and "unchanged" in again.stdout and len(server.asked) == asked
    other = rlbhpc(endpoint, "math500", "--to", to, "--revision", "abc")
    assert other.returncode == USAGE and f"holds revision {SHA}" in other.stderr
    assert rlbhpc(DEAD, "--to", to, "--check").returncode == 0

    (to / "math500" / "test.jsonl").write_bytes(body + b"\n")
    changed = rlbhpc(DEAD, "--to", to, "--check")
    assert changed.returncode == USAGE
    assert "test.jsonl: changed since math500 was staged" in changed.stderr


def test_the_commands_of_the_pages_stage(
    hub: tuple[str, type[Hub]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, server = hub
    server.sets = ("MATH-500", "aime_2024")
    table = pa.Table.from_pylist(SHAPES["aime24"][0])
    pq.write_table(table, tmp_path / "made" / "aime.parquet")
    server.files["data/aime.parquet"] = (tmp_path / "made" / "aime.parquet").read_bytes()
    monkeypatch.chdir(tmp_path)
    pages = [(DOCS / name).read_text() for name in ("first-study.md", "troubleshooting.md")]
    commands = [
        c for page in pages for c in re.findall(r"(?:^|`)rlbhpc stage ([^`\n]+)", page, re.M)
    ]
    assert len(commands) > 2
    for command in commands:
        done = rlbhpc(endpoint, *command.replace("SET", "math500").split())
        assert done.returncode in (0, 4), f"{command}: {done.stderr}"
    assert {p.name for p in (tmp_path / "data").iterdir()} == {"math500", "aime24", "logs"}
    assert len(load_set("aime24", tmp_path / "data" / "aime24")) == 2


def test_a_model_appears_whole_and_once(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    endpoint, server = hub
    server.files["config.json"] = b"{}"
    words = [sys.executable, "-c", "import sys; from pathlib import Path; from rlbhpc.problems "
             "import stage; print(stage.stage_model('o/m@main', Path(sys.argv[1])))"]  # fmt: skip

    def fetch() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, str(tmp_path / "m")],
            env={**os.environ, "HF_ENDPOINT": endpoint, "no_proxy": "127.0.0.1"},
            capture_output=True, text=True,
        )  # fmt: skip

    assert "UserError: o/m" in fetch().stderr  # the hub has lost a file of weights
    assert not (tmp_path / "m").exists()
    server.files["w.safetensors"] = b"weights"
    assert fetch().stdout == "True\n"
    assert sorted(p.name for p in (tmp_path / "m").glob("[!.]*")) == [
        "config.json",
        "w.safetensors",
    ]
    assert fetch().stdout == "False\n"
    endpoint = DEAD
    (tmp_path / "m").rename(tmp_path / "other")
    assert "no way to fetch it from here" in (line := fetch().stderr.splitlines()[-1])
    assert (
        f"`hf download o/m --revision main --local-dir m` and copy the folder to {tmp_path}" in line
    )


def test_without_a_network_it_says_what_to_run_where(tmp_path: Path) -> None:
    to = tmp_path / "my data"
    told = rlbhpc(DEAD, "math500", "--to", to, "--revision", "v1")
    assert told.returncode == TRY_AGAIN
    assert told.stderr.count("\n") == 1 and "Traceback" not in told.stderr
    assert "run `rlbhpc stage math500 --to data --revision v1` and then `rsync -a " in told.stderr
    assert f"and here `rlbhpc stage math500 --to '{to}' --check`" in told.stderr
    assert not to.exists()


def test_an_answer_of_the_hub_is_passed_on(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    endpoint, server = hub
    gone = rlbhpc(endpoint, "aime24", "--to", tmp_path / "data")
    assert gone.returncode == USAGE and "HuggingFaceH4/aime_2024: " in gone.stderr
    server.hash = "0" * 64
    damaged = rlbhpc(endpoint, "math500", "--to", tmp_path / "data")
    assert damaged.returncode == TRY_AGAIN
    assert "test.jsonl: arrived damaged and was removed; stage again" in damaged.stderr
    assert not (tmp_path / "data/math500/test.jsonl").exists()
    server.files = {"README.md": b""}
    rearranged = rlbhpc(endpoint, "math500", "--to", tmp_path / "data")
    assert rearranged.returncode == USAGE and "no file like test.jsonl" in rearranged.stderr


def test_plain_addresses(
    hub: tuple[str, type[Hub]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, server = hub
    records = [{"problem": f"Problem {i}", "answer": str(i)} for i in range(2821)]
    server.files["omni_math_rule.jsonl"] = shapes.jsonl(records, tmp_path).read_bytes()
    source = staging.Source(urls=(f"{endpoint}/plain/omni_math_rule.jsonl",))
    monkeypatch.setattr(
        staging, "_file_set", lambda name: replace(SETS["omni-math-rule"], source=source)
    )
    manifest, new = staging.stage("omni-math-rule", tmp_path / "data")
    # The two halves of the split, by count and digest: what makes it the same split elsewhere.
    assert new and {k: v["count"] for k, v in manifest.problems.items()} == {
        "train": 2000,
        "test": 821,
    }
    assert manifest.problems["test"]["digest"] == "8ca0b8c337e03f3f"
    assert staging.stage("omni-math-rule", tmp_path / "data") == (manifest, False)
    source = staging.Source(urls=(f"{endpoint}/plain/gone.jsonl",))
    with pytest.raises(UserError, match="the server answered 404"):
        staging.stage("omni-math-rule", tmp_path / "other")
    source = staging.Source(urls=(f"{DEAD}/gone.jsonl",))
    with pytest.raises(UserError, match="no way to fetch it from here") as refused:
        staging.stage("omni-math-rule", tmp_path / "other")
    assert refused.value.code == TRY_AGAIN


def test_big_fields_stay_in_their_file(
    hub: tuple[str, type[Hub]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, server = hub
    records = [
        {**shapes.LCB_BASE, "question_id": str(i), "private_test_cases": f"tests {i} é" * 9}
        for i in range(30)
    ]
    original = shapes.jsonl(records, tmp_path)
    server.files["test.jsonl"] = original.read_bytes()
    source = staging.Source(urls=(f"{endpoint}/plain/test.jsonl",))
    changed = replace(questions.LIVECODEBENCH, source=source)
    monkeypatch.setattr(staging, "_file_set", lambda name: changed)
    manifest, _ = staging.stage("livecodebench", tmp_path / "data")
    assert set(manifest.files) == {"test.jsonl", "slim.jsonl"}

    folder = tmp_path / "data" / "livecodebench"
    assert "tests 3" not in (folder / "slim.jsonl").read_text()
    slim, full = (
        load_set("livecodebench", folder, "all"),
        load_set("livecodebench", original, "all"),
    )
    assert [(p.id, p.content_hash) for p in slim] == [(p.id, p.content_hash) for p in full]
    assert slim[17].extras["tests"].read() == {"private_test_cases": "tests 17 é" * 9}
    text = (folder / "test.jsonl").read_text()
    (folder / "test.jsonl").write_text(text.replace("tests 17", "forge 17"))
    with pytest.raises(UserError, match="record 18: changed since"):
        slim[17].extras["tests"].read()


@pytest.mark.parametrize("file", ["../secret.jsonl", "/etc/passwd"])
def test_a_slim_file_points_at_its_neighbours_only(file: str, tmp_path: Path) -> None:
    pointer = {"file": file, "number": 1, "offset": 0, "names": ["private_test_cases"],
               "digest": "0"}  # fmt: skip
    record = {**shapes.LCB_BASE, "_deferred": pointer}
    (tmp_path / "slim.jsonl").write_text(json.dumps(record))
    with pytest.raises(UserError, match="not what `rlbhpc stage` writes"):
        load_set("livecodebench", tmp_path, "all")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda folder: (folder / "extra.jsonl").write_text("{}"), "extra.jsonl: added since"),
        (lambda folder: (folder / "test.jsonl").unlink(), "test.jsonl: missing since"),
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest.json in it"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "no manifest"),
        (lambda folder: (folder / "manifest.json").write_text('{"set": 1}'), "no manifest"),
    ],
)
def test_a_folder_that_changed_is_named(change: object, complaint: str, tmp_path: Path) -> None:
    folder = tmp_path / "math500"
    folder.mkdir()
    shapes.jsonl(SHAPES["math500"][0], folder)
    manifest = {
        "set": "math500",
        "source": {},
        "files": staging._file_hashes(folder),
        "problems": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / ".cache").mkdir()
    (folder / ".cache" / "left by the hub library").write_text("x")
    assert staging.check(folder).set == "math500"
    assert callable(change)
    change(folder)
    with pytest.raises(UserError, match=complaint):
        staging.check(folder)


def test_what_is_at_a_fixed_address_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"humaneval\+ is fetched from a fixed address, which has"):
        staging.stage("humaneval+", tmp_path, "v1")
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").touch()
    assert staging.staged_set_names(tmp_path) == ["a", "b", "c"]


def test_every_set_but_the_generated_has_a_source() -> None:
    for name in SETS:
        if name in ("compose", "countdown", "program-tasks", "reasoning-gym"):
            with pytest.raises(UserError, match="nothing to fetch"):
                staging._file_set(name)
        else:
            source = staging._file_set(name).source
            assert bool(source.repo) != bool(source.urls)
            assert all(url.startswith("https://") for url in source.urls)


def test_the_fifth_release_of_livecodebench_has_five_parts() -> None:
    parts = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl")
    assert staging._file_set("livecodebench").source.patterns == parts


def test_wrong_use_is_told() -> None:
    for args in ((), ("math501",), ("gsm8k", "math500", "--revision", "x"), ("--nonsense",)):
        told = rlbhpc(DEAD, *args)
        assert told.returncode == USAGE and "Traceback" not in told.stderr
