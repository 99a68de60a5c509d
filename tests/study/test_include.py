"""Includes, overrides on the command line, and paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.study.tree import Node, load_tree, local_path


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / "main.yaml"


def test_the_including_file_wins_key_by_key(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        one="a: {x: 1, y: 1}\nlist: [1, 2]\n",
        two="a: {y: 2, z: 2}\nb: 2\n",
        main="include: [one.yaml, two.yaml]\na: {z: 3}\nlist: [9]\n",
    )
    tree = load_tree(main)
    assert tree.plain() == {"a": {"x": 1, "y": 2, "z": 3}, "list": [9], "b": 2}
    assert tree.entries["a"].entries["y"].file.endswith("two.yaml")


def test_null_takes_an_included_entry_away(tmp_path: Path) -> None:
    main = write(
        tmp_path, one="arms: {a: {n: 1}, b: {n: 2}}", main="include: one.yaml\narms: {a: null}"
    )
    assert load_tree(main).plain() == {"arms": {"b": {"n": 2}}}


def test_include_of_an_include_is_relative_to_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/two.yaml").write_text("path: here\n")
    (tmp_path / "deep/one.yaml").write_text("include: two.yaml\n")
    main = write(tmp_path, main="include: deep/one.yaml\n")
    tree = load_tree(main)
    assert local_path(tree.entries["path"]) == tmp_path / "deep/here"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("include: main.yaml", "main.yaml:1: include: includes itself: main.yaml -> main.yaml"),
        ("include: loop.yaml", "includes itself: main.yaml -> loop.yaml -> main.yaml"),
        ("include: nowhere.yaml", "no such file"),
        ("include: ''", "found ''; allowed: the path of a YAML file, or a list"),
        ("include: [[one]]", "found a list; allowed: the path of a YAML file, or a list"),
        ('include: "a\\nb"', "found 'a\\nb'; a path is one line"),
        ("include: ~nobody-of-this-name/x", "no home folder for the ~ in '~nobody-of-this-name/x'"),
        ("[1]", "main.yaml:1: found a list; a study file is a mapping of keys to values"),
        ("include: 5", "found 5; allowed: the path of a YAML file, or a list"),
        ("include: {a: b}", "found a mapping"),
        ("include: $NO_SUCH_VARIABLE/x", "the environment has no variable $NO_SUCH_VARIABLE"),
    ],
)
def test_bad_includes(tmp_path: Path, text: str, complaint: str) -> None:
    main = write(tmp_path, main=text, loop="include: main.yaml")
    with pytest.raises(UserError) as error:
        load_tree(main)
    assert complaint in str(error.value)


def test_as_many_files_as_may_be_included(tmp_path: Path) -> None:
    main = write(tmp_path, one="a: 1", main=f"include: [{', '.join(['one.yaml'] * 31)}]")
    assert load_tree(main).plain() == {"a": 1}
    write(tmp_path, main=f"include: [{', '.join(['one.yaml'] * 32)}]")
    with pytest.raises(UserError, match=r"main\.yaml:1: include\[31\]: more than 32"):
        load_tree(main)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("include=x.yaml", "--set include: files are included by a study file alone"),
        ("a", "--set 'a': write key=value, such as arms.base.n=256"),
        ("=1", "--set '=1': write key=value, such as arms.base.n=256"),
        ("a. b=1", "--set 'a. b': ' b' cannot be a key"),
        ("a=[", "--set 'a': --set: not valid YAML: did not find expected node content"),
        (".".join("a" * 25) + "=1", "25 levels; at most 24 are allowed"),
    ],
)
def test_what_an_override_cannot_say(tmp_path: Path, override: str, complaint: str) -> None:
    main = write(tmp_path, main="a: {b: 1}")
    with pytest.raises(UserError) as error:
        load_tree(main, [override])
    assert complaint in str(error.value)


def test_an_override_keeps_the_place_of_what_it_goes_into(tmp_path: Path) -> None:
    main = write(tmp_path, main="x: 1\na:\n  b: 1\n")
    tree = load_tree(main, ["a.c=2", ".".join("d" * 24) + "=3", "x= "])
    assert (tree.entries["a"].line, tree.entries["a"].file) == (2, str(main))
    assert tree.entries["a"].entries["c"].place() == "--set: a.c"
    assert "x" in tree.entries


def test_overrides_win_and_names_may_hold_dots(tmp_path: Path) -> None:
    main = write(tmp_path, main="models:\n  q2.5-7b: {path: a}\nseed: 1\n")
    tree = load_tree(main, ["models.q2.5-7b.path=b", "seed=1e-3", "new.key=[1, x]"])
    assert tree.plain() == {
        "models": {"q2.5-7b": {"path": "b"}}, "seed": 1e-3, "new": {"key": [1, "x"]}
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "=1", "a", "a..b=1", "-x=1", "a b=1", "a=[", ".".join("a" * 500) + "=1"]
)
def test_bad_overrides(tmp_path: Path, text: str) -> None:
    main = write(tmp_path, main="a: {b: 1}")
    with pytest.raises(UserError, match="--set"):
        load_tree(main, [text])


def test_paths_begin_where_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)

    def at(text: str, file: str = "studies/s.yaml") -> Path:
        return local_path(Node(text, file, 1, "path"))

    assert at("data/x") == tmp_path / "studies/data/x"
    assert at("../x") == tmp_path / "x"
    assert at("/abs") == Path("/abs")
    assert at("~/x") == Path("/home/me/x")
    assert at("$SCRATCH/m") == Path("/scratch/me/m")
    assert at("${SCRATCH}/m") == Path("/scratch/me/m")
    assert at("x", "--set") == tmp_path / "x"
    assert at("$(touch y)") == tmp_path / "studies/$(touch y)", "no shell looks at it"
