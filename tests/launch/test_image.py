"""Images: built and looked into with a stub of Apptainer; definitions that hold together."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.errors import DONE, UserError
from rlbhpc.launch import container
from tests.launch.made import Stubs

LABELS = {"rlbhpc.version": "0.1.0", "rlbhpc.revision": "abc"}
INSPECT = json.dumps({"data": {"attributes": {"labels": LABELS}}})
INSPECTED = f"case $1 in inspect) echo '{INSPECT}';;"


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    found = Stubs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:/usr/bin:/bin")
    return found


def call(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result.stdout


def test_an_image_appears_whole_with_its_revision(
    tmp_path: Path, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs.add(
        "apptainer", 'for last in "$@"; do before=${path-}; path=$last; done; echo sif >"$before"'
    )
    target = tmp_path / "deep" / "one.sif"
    code, text = call("image", "build", "cpu", "-o", target)
    assert code == DONE
    digest = hashlib.sha256(b"sif\n").hexdigest()
    assert text == f"{target}: sha256 {digest}\n"
    assert [path.name for path in target.parent.iterdir()] == ["one.sif"]
    (words,) = stubs.calls("apptainer")
    assert any(re.fullmatch(r"revision=[0-9a-f]{40}(-changed)?", word) for word in words)
    assert words[0] == "build"
    assert words[-2:] == [f"{target}.partial", str(container.CHECKOUT / "containers" / "cpu.def")]
    monkeypatch.chdir(tmp_path)
    assert call("image", "build", "gpu") == (DONE, f"rlbhpc-gpu.sif: sha256 {digest}\n")


@pytest.mark.parametrize(
    ("git", "revision"),
    [("echo abc;;", "abc"), ("echo abc;; *) echo M file;;", "abc-changed"),
     ("echo abc;; *) exit 1;;", "abc-changed"), ("exit 1;;", "unknown")],
)  # fmt: skip
def test_the_revision_says_whether_files_were_changed(
    stubs: Stubs, git: str, revision: str
) -> None:
    stubs.add("git", f'case "$*" in *HEAD*) {git} esac')
    assert container.read_revision() == revision


def test_images_are_built_from_a_checkout_by_either_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs = Stubs(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(stubs.folder))
    stubs.add("singularity")
    assert container.find_program() == "singularity"
    monkeypatch.setattr(container, "CHECKOUT", tmp_path)
    told = "containers/gpu.def is not there: images are built from a checkout of rlbhpc"
    with pytest.raises(UserError, match=told):
        container.build_image("gpu", tmp_path / "one.sif")


@pytest.mark.parametrize(
    ("apt", "mirror"),
    [
        ("echo http://one.org/debian-sec; echo http://two.org/debian/", "http://two.org/debian"),
        ("echo http://one.org/ubuntu/", container.DEBIAN_MIRROR),
        ("exit 100", container.DEBIAN_MIRROR),
        (None, container.DEBIAN_MIRROR),
    ],
)
def test_an_image_is_built_from_the_mirror_of_the_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apt: str | None, mirror: str
) -> None:
    stubs = Stubs(tmp_path / "bin")
    # Git, for the revision, is where apt-get may be as well.
    monkeypatch.setenv("PATH", str(stubs.folder))
    monkeypatch.setattr(container, "read_revision", lambda: "abc")
    stubs.add("apptainer", 'for last in "$@"; do path=$last; done; exit 1')
    if apt is not None:
        stubs.add("apt-get", apt)
    with pytest.raises(UserError):
        container.build_image("cpu", tmp_path / "one.sif")
    (words,) = stubs.calls("apptainer")
    assert f"mirror={mirror}" in words


def test_a_failed_build_leaves_nothing_and_says_where_else(tmp_path: Path, stubs: Stubs) -> None:
    stubs.add("apptainer", "exit 255")
    with pytest.raises(UserError, match="build on another machine"):
        container.build_image("cpu", tmp_path / "one.sif")
    assert not list(tmp_path.glob("*.sif*"))
    with pytest.raises(
        UserError, match=r"one\.sif: no such image; build it with `rlbhpc image build`"
    ):
        container.verify_image(tmp_path / "one.sif")


def test_verify_shows_labels_and_digest(tmp_path: Path, stubs: Stubs) -> None:
    stubs.add(
        "apptainer",
        f"{INSPECTED} *) echo 'rlbhpc, version 0.1.0';; esac",
    )
    sif = tmp_path / "one.sif"
    sif.write_bytes(b"sif")
    code, text = call("image", "verify", sif, "--json")
    assert code == DONE
    assert json.loads(text) == {
        "sif": str(sif), "sha256": hashlib.sha256(b"sif").hexdigest(),
        "rlbhpc": "rlbhpc, version 0.1.0", "labels": LABELS,
    }  # fmt: skip
    labels = "".join(f"{name}: {value}\n" for name, value in sorted(LABELS.items()))
    digest = hashlib.sha256(b"sif").hexdigest()
    assert call("image", "verify", sif) == (
        DONE, f"{labels}rlbhpc, version 0.1.0\nsha256 {digest}\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('echo \'{"data": {"attributes": {"labels": {}}}}\'', "not an image of rlbhpc"),
        ("echo broken; exit 1", "cannot be read as an image"),
        ('echo \'{"data": {"attributes": {"labels": null}}}\'', "not an image of rlbhpc"),
        (f"{INSPECTED} *) exit 3;; esac", "does not start in it: exit code 3; see `rlbhpc doctor`"),
        (f"{INSPECTED} *) printf 'no GLIBC\\n\\033[0m' >&2; exit 1;; esac", "no GLIBC"),
    ],
)
def test_an_image_that_will_not_do_is_told_why(
    tmp_path: Path, stubs: Stubs, body: str, message: str
) -> None:
    stubs.add("apptainer", body)
    (tmp_path / "one.sif").touch()
    with pytest.raises(UserError, match=message):
        container.verify_image(tmp_path / "one.sif")


def test_without_apptainer_it_says_what_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="module load apptainer"):
        container.build_image("cpu", tmp_path / "one.sif")


@pytest.mark.parametrize("kind", container.IMAGE_KINDS)
def test_definitions_copy_what_is_there_and_are_labelled(kind: str) -> None:
    text = (container.CHECKOUT / "containers" / f"{kind}.def").read_text()
    files = text.partition("%files\n")[2].partition("\n\n")[0].split("\n")
    for line in files:
        source, _ = line.split()
        assert (container.CHECKOUT / source).exists()
    assert f"rlbhpc.kind {kind}" in text
    assert "MirrorURL: {{ mirror }}" in text
    assert "constraints.txt" in text
