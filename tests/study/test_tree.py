"""Reading YAML as data: places, numbers, and everything that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.study.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Node, parse, read_tree, shown


def test_every_node_knows_its_place() -> None:
    tree = parse("a:\n  b: [1,\n      2]\nc: {d: x}\n", "f.yaml")
    b = tree.entries["a"].entries["b"]
    assert (b.key, b.line) == ("a.b", 2)
    assert [(item.key, item.line) for item in b.items] == [("a.b[0]", 2), ("a.b[1]", 3)]
    assert tree.entries["c"].entries["d"].place() == "f.yaml:4: c.d"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("1E3", 1000.0), ("-.5", -0.5), ("7.", 7.0), ("007", 7), ("+3", 3),
        ("no", "no"), ("on", "on"), ("12:30:00", "12:30:00"), ("2001-12-14", "2001-12-14"),
        ("1_000", "1_000"), ("0x1F", "0x1F"), (".nan", ".nan"), (".inf", ".inf"),
        ("true", True), ("~", None), ("", None), ("'1'", "1"), ('"true"', "true"), ("''", ""),
        ("9" * 5_000, "9" * 5_000), ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = parse(f"a: {text}", "f").plain()["a"]
    assert found == value
    assert type(found) is type(value)


def test_anchors_and_merges() -> None:
    tree = parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [{y: 5}, *a]}\nd: *a\n", "f")
    assert tree.plain()["b"] == {"y": 3, "x": 1}
    assert tree.plain()["c"] == {"y": 5, "x": 1}
    assert tree.entries["d"].entries["x"].key == "d.x"
    assert parse("a: {'<<': 1}", "f").plain() == {"a": {"<<": 1}}, "quoted, it is a plain key"


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: 2\na: 3", "f:3: a: duplicate key, first on line 1"),
        ("a:\n- !!python/object/apply:os.system [x]", "f:2: a[0]: YAML tags are not allowed"),
        ("!!map {a: 1}", "f:1: YAML tags are not allowed"),
        ("a: &x [*x]", "nested deeper than"),
        ("a: *x", "f:1: not valid YAML: found undefined alias"),
        (bomb(12), "more than 20,000 values"),
        ("a: " + "[" * 900 + "]" * 900, f"nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "[" * 3_000 + "]" * 3_000, "nest"),  # PyYAML 6.0.4 has a limit of its own
        ("? [a]\n: b", "a key must be a plain name"),
        ("a: 1\n---\nb: 1", "a second YAML document"),
        ("# nothing", "f: empty"),
        ("a: [1,\n", "not valid YAML"),
        ("a: b\n\tc: 1", "f:2: not valid YAML"),
        ("a: \x01", "f:1: not valid YAML: control characters"),
        ('a: "\\0"', "control character '\\x00'"),
        ('a: "\\e[31m"', "control character '\\x1b'"),
        ('"a\\tb": 1', "cannot be printed in the key"),
        ("a: {<<: 3}", "`<<` takes a mapping"),
        ("a: 5\n---\nb: 1", "f:2: a second YAML document; a study file holds one"),
        ("a: 1\nb: \x01", "f:2: not valid YAML: control characters are not allowed"),
        ("a: 1\n? [x]\n: 1", "f:2: a key must be a plain name"),
        ("!!str a: 1", "f:1: a key must be a plain name"),
        ("a: {<<: [{b: 1}, 3]}", "f:1: a.<<: `<<` takes a mapping, or a list of mappings"),
        ("a:\n  b: 1\n  b: 2", "f:3: a.b: duplicate key, first on line 2"),
        ("a: [1, 2", "f:2: not valid YAML: did not find expected ',' or ']'"),
    ],
)
def test_refused(text: str, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text, "f")
    assert complaint in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\xff\xfea", ":1: not UTF-8 text"),
        (b"a: 1\nb: \xe9", ":2: not UTF-8 text"),
        (b" " * (MAX_BYTES + 1), "a study file has at most"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read_tree(file)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    for path, complaint in {
        tmp_path: "not a file; give the path of a study file",
        Path("/dev/zero"): "not a file; give the path of a study file",
        tmp_path / "none": "no such file; `rlbhpc init` writes one to start from",
        tmp_path / ("x" * 5_000): "cannot be read: File name too long",
        tmp_path / "a\0b": r"a\\x00b': cannot be read: .*embedded null",
    }.items():
        with pytest.raises(UserError, match=complaint):
            read_tree(path)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_tree(file).plain() == {"a": 1}


def nested(depth: int) -> str:
    return "a: " + "[" * depth + "]" * depth


def test_what_stands_at_a_bound_is_read(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"a: 1\n".ljust(MAX_BYTES))
    assert read_tree(file).plain() == {"a": 1}
    assert parse(nested(MAX_DEPTH), "f").entries["a"].items
    with pytest.raises(UserError, match="nested deeper"):
        parse(nested(MAX_DEPTH + 1), "f")
    # The root and the list are values too.
    full = "a: [" + "x, " * (MAX_NODES - 2) + "]"
    assert len(parse(full, "f").entries["a"].items) == MAX_NODES - 2
    with pytest.raises(UserError, match="more than 20,000 values"):
        parse(full.replace("]", "x]"), "f")
    with pytest.raises(UserError, match="more than 20,000 values"):
        parse(f"a: &a [{'x, ' * 9_999}]\nb: *a", "f")


def test_a_text_of_the_command_line_has_no_line() -> None:
    assert parse("[1]", "--set", line=0).items[0].place() == "--set: [0]"
    for text in ("[1", "a: \x01", "{a: 1, a: 2}"):
        with pytest.raises(UserError, match=r"^--set: "):
            parse(text, "--set", line=0)
    with pytest.raises(UserError, match=r"a: duplicate key$"):
        parse("{a: 1, a: 2}", "--set", line=0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"), (True, "true"), (False, "false"), ({}, "a mapping"), ([], "a list"),
        (1.5, "1.5"), ("x" * 58, f"'{'x' * 58}'"), ("x" * 59, f"'{'x' * 58}…"),
        (10**60, "1" + "0" * 58 + "…"),
    ],
)  # fmt: skip
def test_a_value_is_shown_in_a_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_long_place_keeps_its_ends() -> None:
    for length, shown_length in ((160, 160), (161, 141)):
        key = (
            Node(1, "f", 0, "k" * 80 + "m" * (length - 140) + "z" * 60).place().removeprefix("f: ")
        )
        assert (len(key), key[:80], key[-60:]) == (shown_length, "k" * 80, "z" * 60)


def test_long_and_odd_values_are_shown_on_one_line() -> None:
    assert shown("x" * 500) == "'" + "x" * 58 + "…"
    assert shown("a\nb\u202e") == "'a\\nb\\u202e'"
    assert len(Node(1, "f", 1, "k" * 10_000).place()) < 200
