"""Stored bytes mean tomorrow what they mean today: files of now, and sums taken by hand."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import is_dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pyarrow as pa
import pytest

from rlbhpc import store
from rlbhpc.errors import LeftOutWarning
from rlbhpc.store import checked, journal, left_out, parts
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Note, Skipped
from rlbhpc.store.sample_rows import Sample, to_samples
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from tests.store import made, reading

# Two samples, an index block of them, and a third behind it: by schema versions 2 and 3.
FORMAT_3 = base64.b85decode(
    "a%^H~aAQg{0RjUA0RjUA0RjUAfJr5p0RjUAQ%z7zW&i*Hga7~lb0NO0(Gu)E0E5j$6954K69)(Y!&}2qC8VK~9|Z#cViN#"
    "C03>t33jo2*VL$``000I60003I00II45+Vlx2?7A{9%5m0Wo=<}XfH4_P;zf#Y-MdAFf1T+a(N&yE(%m=Wgua0b9ZHOAZc"
    "?TGA;oE0|Zk|P)u|H004mi007UUty3eQ)_Q-QyGx=d00002000070098Pdv4Dj)Qv$D1ONe$5&%#D0Em6S2LSK|0Dv|?1O"
    "Na41^@s60RR911poj55C8x_000O869^Ch01N=|3u0k&Wo=<}XfH7{Wq4s@bYWsKGQ+%XZ*FBa0Kjk&0RRBF0Kfn=06YN#0"
    "|ZG<L|E7W007tk0010daR>ka007Z)O8@`>000000000000000003$zlgTas000O800062003KCB4S~4Wg;vvEFx`TbZ9Ry"
    "A}lvuEL$RCVRL07EHp4IB5h%GXfH7$EH_<U0RR910ssI2GBW@G00000000;O000000046#zO2y_>^)n<Q6;3IlOF&80000"
    "abHD%q0002ZVL)O4000F7{{R30000000003100062005c*00000007UUty3eQ)_Qwx&mPo`K@<Q00001peZT+!0001hHb9"
    "U7000C40RR9100031000330|Zz_PDCmJ00000004EZDFy)o0|Zk|P)uzA004vl006?$*9s506>npF{nC&C00001000072>"
    "|f`0001JLhIuElLBo80RNE@0AK(Bz^-$^2mq5nB5^<j00006GXMkv02Cq#00#m9@E&4eb7gH|bZ9RyGEj1FVr*q?ATTT-b"
    "aHthF)j*JXk{Q_ZgY2Kav*7QATll"
)
FORMAT_4 = base64.b85decode(
    "a%^H~aAQg|L8YF>L8YF>L8YF><Gm>+L8YF>Q%z7zXaE2Jh5!Hnb0NO0(Gu)ERX#YJ6954K69)(Y<6FZ~C8VK~9|Z#c|NmkY"
    "06_pGbHED#!OdYn1ONa41^@s60TBQK0ss;s2LK5I0Pr4SVRL0|VRUFOFfvebZ(?j^Z6Gi#AarthATTZpRA^-&VQzDGWpW^C"
    "b09J<L8YF>Q%z7zb^rhXg8%>ko6o&1y9Qxm%0J8Tq9_0W00IC200#g80OEUY&mPo`K@<c40RjP#6aY{F0Em6S2LSK|0Dv|?"
    "1ONa41^@s60RR911poj55C8x{000O869^Ch01N=|3u0k&Wo=<}XfH7{Wq4s@bYWsKGQ+%XZ*FBa0Kjk&0RRBF0Kfn=06amZ"
    "p2bN{L|E7W007tk001DUHO>G4003`g3(Eii000000000000000004@Jg{v+A000O800062003KCB4S~4Wg;vvEFx`TbZ9Ry"
    "A}lvuEL$RCVRL07EHp4IB5h%GXfH7$EH_<U0RR910ssI2GBW@G00000000;O000000046#zO2y_>^)n<Q6;3IlOF&80000a"
    "bHD%q0002ZVL)O4000F7|Ns90000000003100062005i-00000005iMy)C;2VPbo3&mPo`K@<Q00001peZT+!0001hHb9U7"
    "000C40RjO400031002Ryp2b*2PDCyN00000005?16k|c9p2bs5P)u(C004#n006?$*9s506>t6$Dy@(J00001000072>|f|"
    "0001JLhIuElLBo80RR90krM!5006+QbHE4ylRzSIKm-5)00uPx1OfmQA_)Ko0s!zHVqtS-ZDDk1FEBDta&Ka6Wo;lZEFg4p"
    "c_1+^3RGxiAYpEEcV%)QX>%YlE&"
)
STORED = [
    made.sample(0, 0),
    replace(
        made.sample(1, 2, 40), paper=1, rule="exact", grader="ab12", error="none", text="ü",
        token_ids=np.array([5, 70_000], np.int32), logprobs=np.array([-0.5, -2], np.float16),
        entropies=np.array([0.25, 1], np.float16),
    ),
    made.sample(0, 1),
]  # fmt: skip
BOTH_READINGS = [STORED[0], replace(STORED[1], strict=2, lenient=1), STORED[2]]


@pytest.mark.parametrize(
    ("data", "samples", "offsets", "spans", "digests"),
    [
        # Of an earlier format samples are read one by one, and keep their digests.
        (FORMAT_3, STORED, [24, 154, 562], [], [4461962022572925299, 8851438191231476687]),
        (
            FORMAT_4,
            BOTH_READINGS,
            [24, 156, 566],
            [(24, 302, 2877655178)],
            [4461962022572925299, 7088954689453936539],
        ),
    ],
)
def test_a_journal_of_each_format_is_read_for_good(
    tmp_path: Path,
    data: bytes,
    samples: list[Sample],
    offsets: list[int],
    spans: list[tuple[int, int, int]],
    digests: list[int],
) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(data)
    listed = journal.read_index(path)
    assert (listed.size, listed.closed, listed.skipped, listed.unused) == (len(data), False, (), 0)
    assert listed.cells == [Cell("base", 0, "math/0", 7), Cell("base", 40, "math/1", 7)]
    assert listed.records["offset"].tolist() == offsets
    assert [tuple(span) for span in listed.spans] == spans
    assert listed.records["digest"].tolist()[:2] == digests
    for row, sample in zip(to_samples(reading.read_journal(path).table), samples, strict=True):
        for name in sample.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(row, name), getattr(sample, name))
    columns = ["answer", "paper", "strict", "lenient"]
    for name, values in reading.read_index(path, columns).to_pydict().items():
        assert values == [getattr(sample, name) for sample in samples]


def test_a_journal_whose_header_is_damaged_says_its_version_by_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    for data, samples in ((FORMAT_3, STORED), (FORMAT_4, BOTH_READINGS)):
        path.write_bytes(b"rlbhpcJ\0" + data[8:])
        found = reading.read_journal(path)
        assert [row.strict for row in to_samples(found.table)] == [s.strict for s in samples]
        assert [row.text for row in to_samples(found.table)] == [s.text for s in samples]


def test_what_was_read_or_listed_cannot_be_changed() -> None:
    """Only what is filled while it is read, or while files are listed, may change."""
    modules = [import_module(f"{store.__name__}.{m.name}") for m in iter_modules(store.__path__)]
    classes = [c for m in modules for c in vars(m).values() if isinstance(c, type)]
    mutable = {c.__name__ for c in classes if is_dataclass(c) and not c.__dataclass_params__.frozen}
    assert mutable == {"Listing"}


def test_small_files_are_text_with_a_checksum(tmp_path: Path) -> None:
    values = {"prompt": "ünï", "places": [1, 2]}
    compact = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    checked.write(tmp_path / "a.json", values)
    sha256 = hashlib.sha256(compact).hexdigest()
    assert (tmp_path / "a.json").read_text() == (
        f'{{\n "sha256": "{sha256}",\n "prompt": "ünï",\n "places": [\n  1,\n  2\n ]\n}}'
    )
    assert checked.read(tmp_path / "a.json") == values
    for text in (compact, b"[]", b'{"sha256": null, "a": 1}'):
        (tmp_path / "b.json").write_bytes(text)
        with pytest.raises(ValueError, match="its checksum does not match"):
            checked.read(tmp_path / "b.json")
    left_out.mark_damaged(tmp_path / "j", [7, 5])
    written = (tmp_path / "j.damaged").stat().st_ino
    left_out.mark_damaged(tmp_path / "j", [5])
    assert (tmp_path / "j.damaged").stat().st_ino == written
    assert checked.read(tmp_path / "j.damaged") == {"places": [5, 7]}


def test_a_plan_says_what_is_asked_of_every_cell(tmp_path: Path) -> None:
    asked = {Cell("arm", 0, "s/1", 11): 3, Cell("arm", 10, "s/2", 12): 4}
    Grid("m", provenance={"code": "1"}).grown(asked).save(tmp_path / "grid.json")
    assert checked.read(tmp_path / "grid.json") == {
        "model": "m", "n": 4, "chunk": [2, 4], "steps": [0, 10],
        "cells": {"s/1": [[11, 3], [-1, 0]], "s/2": [[-1, 0], [12, 4]]},
        "provenance": {"code": "1"},
    }  # fmt: skip


def test_ids_and_digests_are_those_of_their_texts() -> None:
    assert answer_id("42") == int(hashlib.sha256(b"42").hexdigest()[:12], 16)
    assert checked.digest_of_bytes(b"42") == hashlib.sha256(b"42").hexdigest()[:16]


@pytest.mark.parametrize("offset", [0, 1])
def test_a_checksum_is_over_validity_lengths_and_values(offset: int) -> None:
    lists = [[1, -2], None, [], [3], [4, 5, 6]]
    columns = {
        "number": pa.array([1, 2, 3, 4, 5], pa.int16()),
        "missing": pa.array([1, None, 3, 4, 5], pa.int16()),
        "word": pa.array(["a", "ü", "", "a", "bc"]),
        "name": pa.array(["a", "ü", "", "a", "bc"]).dictionary_encode(),
        "list": pa.array(lists, pa.list_(pa.int16())),
        "none": pa.array([None] * 5, pa.list_(pa.int16())),
    }
    sizes = [2, 3 - offset]
    found = parts.checksums(pa.table(columns).slice(offset), sizes)
    first = offset
    for group, size in enumerate(sizes):
        rows = slice(first, first + size)
        first += size
        words = [word.encode() for word in columns["word"].to_pylist()[rows]]

        def ragged(values: list[bytes | None], width: int) -> int:
            valid = bytes(value is not None for value in values)
            lengths = np.array([len(v or b"") // width for v in values], "<i4").tobytes()
            return zlib.crc32(valid + lengths + b"".join(v or b"" for v in values))

        packed = [None if v is None else np.array(v, "<i2").tobytes() for v in lists[rows]]
        number = zlib.crc32(np.array([1, 2, 3, 4, 5][rows], "<i2").tobytes())
        text = ragged(words, 1)
        missing = 2**32 - 1 if None in columns["missing"].to_pylist()[rows] else number
        expected = [number, missing, text, text, ragged(packed, 2), ragged([None] * size, 2)]
        assert found[group].tolist() == expected


def table_of(folder: Path, rows: list[Sample]) -> pa.Table:
    """Rows as sealing takes them from a journal."""
    made.journal(Layout(folder), rows, "a")
    return reading.read_journal(Layout(folder).journals(made.ARM, made.SET) / "a.journal").table


def test_a_part_is_named_and_listed_by_its_rows(tmp_path: Path) -> None:
    long = made.sample(1, 0, 40)
    long = replace(long, key=long.key._replace(problem=f"{made.SET}/a b/{'x' * 60}"))
    rows = [replace(long, key=long.key._replace(sample=i)) for i in (0, 1, 2, 5, 7, 8)]
    table = table_of(tmp_path, rows)
    part = parts.write(tmp_path / "parts", lambda: [table], "all")
    content = hashlib.sha256(b"all 3")
    content.update(json.dumps([made.ARM, 40, long.key.problem, 7]).encode())
    content.update(np.array([0, 1, 2, 5, 7, 8], "<i4").tobytes())
    content.update(table["digest"].to_numpy().astype("<i8").tobytes())
    crc = zlib.crc32(parts.read_footer(part))
    label = "a_b_" + "x" * 36
    assert part.name == f"00000040-{label}-{content.hexdigest()[:16]}.{crc:08x}.parquet"
    listed = parts.Listing("all")
    listed.add(table)
    verdict, tokens = str(long.verdict) * 6, 6 * long.n_tokens
    assert json.loads(listed.metadata()["rlbhpc part"]) == {
        "rlbhpc part": {
            "schema_version": 3, "tokens": "all",
            "cells": [[made.ARM, 40, long.key.problem, 7]],
            "groups": [[0, [0, 3, 5, 1, 7, 2], verdict, tokens]],
        }
    }  # fmt: skip


def test_a_row_group_has_256_samples(tmp_path: Path) -> None:
    table = table_of(tmp_path, [made.sample(0, i) for i in range(257)])
    groups = parts.read_listing(parts.write(tmp_path / "parts", lambda: [table], "all")).groups
    assert [len(group.samples) for group in groups] == [256, 1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PAR1" + bytes(4) + b"PAR", "not a whole Parquet file"),
        (b"PAR1" + bytes(4) + b"PAR2", "not a whole Parquet file"),
        (b"PAR1" + b"\1\0\0\0" + b"PAR1", "its footer's length is impossible"),
        (b"PAR1" + bytes(4) + b"PAR1", ""),
    ],
)
def test_the_end_of_a_file_says_where_its_footer_is(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    (tmp_path / "a").write_bytes(data)
    if not reason:
        assert parts.read_footer(tmp_path / "a") == b""
        return
    with pytest.raises(DamagedError, match=reason):
        parts.read_footer(tmp_path / "a")


@pytest.mark.parametrize(
    ("sizes", "stretches"),
    [
        ([], []),
        ([9], [[9]]),
        ([3, 3, 3, 9, 1], [[3, 3], [3], [9], [1]]),
        ([7, 1, 5, 1], [[7], [1, 5], [1]]),
        ([0, 6, 0], [[0, 6, 0]]),
    ],
)
def test_stretches_are_as_long_as_they_may_be(sizes: list[int], stretches: list[list[int]]) -> None:
    assert [sizes[part] for part in parts.cut_by_bytes(sizes, 6)] == stretches


def test_what_was_left_out_is_one_warning() -> None:
    place = Path("a.journal")
    skipped = [
        Skipped(place, "cut", left_out.TORN, start=5, stop=9),
        Skipped(place, "another arm", left_out.FOREIGN, 1200, start=5, stop=5),
        Skipped(place, "flipped", start=0, stop=4),
        Skipped(place, "flipped", start=0, stop=4),
    ]
    notes = [one.note for one in skipped]
    with pytest.warns(LeftOutWarning) as caught:
        left_out.warn_left_out(Path("run"), [*notes, Note(left_out.PURGED, "gone", 2)])
        left_out.warn_left_out(Path("run"), notes[:1])
        left_out.warn_left_out(Path("run"), notes[:3])
    assert [str(w.message) for w in caught] == [
        "run: left out (1 damaged, 1,200 foreign, 2 purged, 1 torn): a.journal: skipped bytes 0 to "
        "4: flipped; a.journal: skipped another arm; gone; and 1 more",
        "run: left out (1 torn): a.journal: skipped bytes 5 to 9: cut",
        "run: left out (1 damaged, 1,200 foreign, 1 torn): a.journal: skipped bytes 0 to 4: "
        "flipped; a.journal: skipped another arm; a.journal: skipped bytes 5 to 9: cut",
    ]
    assert [w.message.incomplete for w in caught] == [True, False, True]  # type: ignore[union-attr]
