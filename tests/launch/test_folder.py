"""The folder of a launch: its record, the parent of its jobs, and the digest of its image."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.launch import host
from rlbhpc.launch.api import describe_image, make_next_folder, write_host, write_launch
from rlbhpc.launch.cluster import Cluster
from rlbhpc.launch.script import Draft, read_options
from rlbhpc.study.layout import Layout
from tests.launch.made import cluster_of, jobs_in, launch_in


def test_a_launch_writes_down_what_others_go_by(tmp_path: Path) -> None:
    words = ["--dependency=afterok:7"]
    cluster = cluster_of(tmp_path, throttle=3)
    launch = launch_in(tmp_path / "s", cluster, options=read_options(words), shard_tokens=300)
    record = json.loads((launch / "launch.json").read_text())
    texts = record.pop("texts")
    (plan,) = (path.stem for path in (launch / "../../plans").iterdir())
    grace = ["--shards", "{}", "--grace", "136"]
    light = {"kind": "light", "tasks": []}
    assert record == {
        "launch": "0001",
        "prefix": f"sampled-{plan[:6]}-0001",
        "plan": plan,
        "cluster": "site",
        "user": getpass.getuser(),
        "image": {},
        "clusters": "",
        "dependency": "afterok:7",
        "throttle": 3,
        "counted": [],
        "jobs": {
            "sample": {
                "kind": "sample", "after": [], "tasks": [[0], [1]],
                "words": ["run", f"../../plans/{plan}.json", *grace],
            },
            "compact": {**light, "after": ["sample"], "words": ["compact", "../..", "--seal"]},
            "report": {**light, "after": ["compact"], "words": ["report", "../.."]},
        },
    }  # fmt: skip
    names = {"sample.sbatch", "compact.sbatch", "report.sbatch", "submit.sh", "study.json"}
    assert texts == {
        name: hashlib.sha256((launch / name).read_bytes()).hexdigest() for name in names
    }
    assert {path.name for path in launch.iterdir()} == {*names, "launch.json", "logs", "host"}
    assert (launch / "submit.sh").stat().st_mode & 0o777 == 0o755


def test_the_parent_of_jobs_brings_what_it_imports(tmp_path: Path) -> None:
    write_host(tmp_path / "host")
    names = {path.name for path in (tmp_path / "host").iterdir()}
    assert names == {path.name for path in Path(host.__file__).parent.glob("*.py")}


def test_an_image_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    image = tmp_path / "one.sif"
    draft, jobs = jobs_in(tmp_path / "s", cluster_of(tmp_path, container={"image": str(image)}))
    assert describe_image(draft) == {"path": str(image)}, "it may be there on the nodes alone"
    for content, seconds in ((b"image", 100), (b"other", 100), (b"other", 200), (b"longer", 200)):
        image.write_bytes(content)
        os.utime(image, (seconds, seconds))
        described = {"path": str(image), "size": len(content), "mtime_ns": seconds * 10**9}
        # One of the same size and time is taken for the one that was read.
        digest = hashlib.sha256(b"image" if seconds == 100 else content).hexdigest()
        assert describe_image(draft) == {**described, "sha256": digest}
        write_launch(draft, jobs)
    assert describe_image(Draft(draft.study, draft.plan, Cluster(), "site", {})) == {}


@pytest.mark.parametrize(
    ("names", "number"),
    [([], "0001"), (["0001"], "0002"), (["0002", "0010", "sending.12", "notes"], "0011")],
)
def test_the_next_launch_has_the_next_number(tmp_path: Path, names: list[str], number: str) -> None:
    layout = Layout(tmp_path / "deep" / "run")
    for name in names:
        (layout.launches / name).mkdir(parents=True)
    assert make_next_folder(layout) == layout.launches / number
    assert (layout.launches / number).is_dir()


def test_a_folder_where_no_launch_can_lie_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = r"file/launches: Not a directory; choose another `output`$"
    with pytest.raises(UserError, match=told):
        make_next_folder(Layout(tmp_path / "file"))
