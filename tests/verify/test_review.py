"""Review sheets: what is picked, what a hostile chain can do, what comes back."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.stats.verifier_error import cot_pass_at_k
from rlbhpc.verify.audit import reviews
from rlbhpc.verify.audit.review import (
    Judgements,
    agreement,
    chain_counts,
    make_sheet,
    model_counts,
    read_judgements,
    write_sheet,
)
from rlbhpc.verify.audit.second_look import Record
from rlbhpc.verify.verdict import Status, Verdict


def samples(name: str, n: int, texts: list[str], question: str = "How many?") -> list[Record]:
    one = Problem(f"made/{name}", {"question": question}, "5", "math")
    right = [Record(one, text, Verdict(Status.RIGHT, "5")) for text in texts]
    wrong = [Record(one, "no", Verdict(Status.WRONG, "4"))] * (n - len(texts))
    return wrong + right


def chains(count: int) -> list[str]:
    return [f"chain {index}" for index in range(count)]


def test_problems_with_an_accuracy_up_to_five_percent_are_picked():
    sheet = make_sheet(
        samples("never", 100, [])
        + samples("rare", 100, chains(1))
        + samples("edge", 100, chains(5))
        + samples("above", 100, chains(6))
        + samples("many", 1000, chains(40))
    )
    assert dict(sheet.counts) == {
        "made/edge": (100, 5), "made/many": (1000, 40), "made/rare": (100, 1),
    }  # fmt: skip
    read = Counter(chain.problem for chain in sheet.chains)
    assert read == {"made/edge": 4, "made/many": 4, "made/rare": 1}


def test_the_same_samples_give_the_same_sheet():
    records = samples("many", 1000, chains(40))
    assert make_sheet(records) == make_sheet(list(records))
    assert make_sheet(records).id != make_sheet(records[:-1]).id


HOSTILE = [
    "</pre><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><iframe src='https://example.com'>",
    "</script><script>fetch('https://example.com')</script>",
    "<!-- --><style>*{display:none}</style>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202eright to left\x00\x1b[2J",
    "]]></pre><svg/onload=alert(1)>",
    "${alert(1)} {{7*7}} \\u003cscript\\u003e",
]


class Page(HTMLParser):
    """Collects the tags, the attributes and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.stack: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.stack.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop() != tag:
            pass

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "pre":
            self.texts.append(data)


@pytest.fixture
def page(tmp_path):
    def make(texts, question="How many?"):
        sheet = make_sheet(samples("hostile", 1000, texts, question), per_problem=50)
        write_sheet(tmp_path / "sheet.html", sheet, "Chains")
        return (tmp_path / "sheet.html").read_text()

    return make


def test_model_text_adds_no_tag_and_no_attribute(page):
    plain, hostile = Page(page(chains(len(HOSTILE)))), Page(page(HOSTILE, HOSTILE[0]))
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert not any(name.startswith("on") for name in hostile.attributes)
    shown = "".join(hostile.texts)
    assert "</pre><script>alert(1)</script>" in shown  # the reader sees what the model wrote
    assert "\u202e" not in shown
    assert "\\u202eright to left\\u0000\\u001b[2J" in shown


def test_the_policy_allows_this_files_script_and_style_and_no_request(page):
    text = page(chains(1))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    for tag in ("script", "style"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert "http://" not in text
    assert "https://" not in text


# --- judgements ----------------------------------------------------------------------------------


@pytest.fixture
def sheet():
    return make_sheet(samples("a", 100, chains(2)) + samples("b", 100, chains(3)))


def saved(sheet, changes=()):
    record = {
        "format": "rlbhpc-review-1", "sheet": sheet.id, "reviewer": "A reader",
        "judgements": {chain.id: "valid" for chain in sheet.chains}, "notes": {},
    }  # fmt: skip
    return record | dict(changes)


def test_what_the_sheet_saved_comes_back(tmp_path, sheet):
    path = tmp_path / "judgements.json"
    path.write_text(json.dumps(saved(sheet)))
    judgements = read_judgements(path, sheet)
    assert judgements.reviewer == "A reader"
    assert set(judgements.words.values()) == {"valid"}
    assert not judgements.by_model


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sheet": "0" * 16}, "made on sheet"),
        ({"reviewer": " "}, "no reviewer's name"),
        ({"judgements": {"x": "valid"}}, "does not hold"),
        ({"judgements": None}, "one word for each chain"),
        ({"format": "other"}, "not a file of judgements"),
    ],
)
def test_bad_judgements_are_refused_with_what_to_do(tmp_path, sheet, changes, complaint):
    path = tmp_path / "judgements.json"
    path.write_text(json.dumps(saved(sheet, changes)))
    with pytest.raises(UserError, match=complaint):
        read_judgements(path, sheet)
    path.write_text(json.dumps(saved(sheet, {"judgements": {sheet.chains[0].id: "perhaps"}})))
    with pytest.raises(UserError, match="allowed are valid, invalid, unclear"):
        read_judgements(path, sheet)
    path.write_text("{")
    with pytest.raises(UserError, match="save the sheet again"):
        read_judgements(path, sheet)


def judged(sheet, words, reviewer="one", by_model=False):
    given = {c.id: w for c, w in zip(sheet.chains, words, strict=True) if w}
    return Judgements(sheet.id, reviewer, given, {}, by_model)


def test_a_damaged_sheet_is_named(tmp_path, sheet):
    facts = reviews.keep(tmp_path, sheet, "base").folder / "sheet.json"
    (whole,) = reviews.kept(tmp_path)
    assert whole.sheet.id == sheet.id
    for damaged in ("", "[]", facts.read_text().replace('"counts"', '"count"')):
        facts.write_text(damaged)
        with pytest.raises(UserError, match=f"{facts}: damaged"):
            list(reviews.kept(tmp_path))


def test_what_readers_said_is_kept_beside_its_sheet(tmp_path, sheet):
    page = reviews.keep(tmp_path, sheet, "base")
    saved_file = tmp_path / "saved.json"
    saved_file.write_text(json.dumps(saved(sheet, {"reviewer": "A. B/" + "c" * 50})))
    taken, person = reviews.take(tmp_path, saved_file)
    assert (taken.folder, taken.title) == (page.folder, "base")
    model = Judgements(sheet.id, "a model", {}, {sheet.chains[0].id: "no verdict"}, True)
    reviews.add(page, model)
    # The names are stored: another one would not replace what the same reader said before.
    assert sorted(path.name for path in page.folder.iterdir()) == [
        f"judgements-A-B-{'c' * 36}-46ae4c7d.json",
        "judgements-a-model-ffb8b21e.json",
        "sheet.html",
        "sheet.json",
    ]
    assert page.judgements() == [person, model]
    saved_file.write_text(json.dumps(saved(sheet, {"sheet": "0"})))
    with pytest.raises(UserError, match=f"made on sheet '0'; the sheets in .* are {sheet.id}"):
        reviews.take(tmp_path, saved_file)


def test_agreement_beyond_chance():
    """The worked example of a 2 x 2 table: 20, 5, 10, 15 of 50 gives kappa = 0.4."""
    sheet = make_sheet(samples("many", 1000, chains(50)), per_problem=50)
    ours = ["valid"] * 25 + ["invalid"] * 25
    theirs = ["valid"] * 20 + ["invalid"] * 5 + ["valid"] * 10 + ["invalid"] * 15
    found = agreement(judged(sheet, ours), judged(sheet, theirs, "two"))
    assert (found.both, found.same) == (50, 35)
    assert found.kappa == pytest.approx(0.4)
    same = judged(sheet, ["valid"] * 50)
    assert math.isnan(agreement(same, same).kappa)
    assert agreement(judged(sheet, [None] * 50), same).both == 0


def test_counts_for_cot_pass_at_k(sheet):
    one = judged(sheet, ["valid", "invalid", "valid", "valid", "unclear"])
    two = judged(sheet, ["valid", "valid", "valid", "invalid", None], "two")
    a, b = chain_counts(sheet, [one, two])
    assert (a.read, a.valid, a.unclear, a.solved) == (2, 1, 0, True)
    assert (b.read, b.valid, b.unclear, b.solved) == (3, 1, 1, True)
    values = cot_pass_at_k(
        [a.n, b.n], [a.right, b.right], [a.valid_among_right, b.valid_among_right], [100]
    )
    assert values.tolist() == [[1.0], [1.0]]


def test_a_sheet_is_the_same_wherever_it_is_made():
    """Judgements name sheets and chains by these."""
    many = make_sheet(samples("many", 1000, chains(9)), per_problem=4)
    assert many.id == "ae9fedf46f30014f"
    assert [(chain.id, chain.text) for chain in many.chains] == [
        ("11406bc8eb1da341", "chain 0"),
        ("80ef148a8ce33044", "chain 1"),
        ("e4863683c2b73d4a", "chain 2"),
        ("a93baba0954de8b4", "chain 5"),
    ]


def test_what_is_unread_or_unclear_leaves_a_problem_open(sheet):
    unclear = judged(sheet, ["unclear", "invalid", "invalid", "valid", None])
    a, b = chain_counts(sheet, [unclear])
    assert (a.solved, a.valid_among_right) == (None, 0)
    # One of two that were read, so of three two.
    assert (b.read, b.valid, b.valid_among_right) == (2, 1, 2)
    assert [one.valid_among_right for one in chain_counts(sheet, [])] == [0, 0]


def test_chains_are_numbered_and_say_what_is_right(page):
    text = page(chains(2))
    assert "<p>2 right of 1000 samples</p>" in text
    assert "<p>Gold answer: <code>5</code></p>" in text
    for number in (1, 2):
        assert f"<h3>Chain {number} of 2, answer <code>5</code></h3>" in text


def test_a_problem_is_unsolved_only_if_every_chain_was_read_and_none_is_valid(sheet):
    bad = ["invalid"] * 5
    assert [one.solved for one in chain_counts(sheet, [judged(sheet, bad)])] == [False, False]
    unread = [*bad[:4], None]
    assert [one.solved for one in chain_counts(sheet, [judged(sheet, unread)])] == [False, None]


def test_a_model_never_overrules_a_person(sheet):
    person = judged(sheet, ["invalid"] * 5)
    model = judged(sheet, ["valid"] * 5, "a model", by_model=True)
    assert chain_counts(sheet, [person, model]) == chain_counts(sheet, [person])
    assert all(one.read == 0 for one in chain_counts(sheet, [model]))
    assert model_counts(sheet, [person, model]) == [
        ("a model", "made/a", 2, 0, 0), ("a model", "made/b", 3, 0, 0),
    ]  # fmt: skip
    both = agreement(person, replace(model, by_model=False))
    assert both.same == 0
