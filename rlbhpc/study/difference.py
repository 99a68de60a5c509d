"""Which stored samples stay valid under the study that is now asked for.

A stored sample stays valid when everything that determined it is what it was: study seed, model
content, prompt, sampling setting and problem text. That is decided per problem, by fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from rlbhpc import plugins
from rlbhpc.study.study import Study


@dataclass(frozen=True)
class BlockChange:
    """What becomes of the stored samples of one arm, problem set and step.

    ``valid`` of ``problems`` requested problems keep their samples; ``because`` names what the
    others differ in. ``asked`` is False for what the new study no longer asks for: it is kept on
    disk and not counted.
    """

    arm: str
    set_name: str
    step: int
    valid: int
    problems: int
    because: tuple[str, ...] = ()
    asked: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether all its stored samples count as before."""
        return self.asked and self.valid == self.problems

    def __str__(self) -> str:
        """One line, as `rlbhpc check` prints it.

        A block is all samples of one arm (a model under one prompt and sampling setting) on one
        problem set at one training step. ``valid`` of its ``problems`` keep their stored samples.
        """
        block = f"{self.arm}, {self.set_name}, step {self.step}"
        if not self.asked:
            return f"{block}: no longer asked for; its samples stay on disk"
        if self.is_valid:
            return f"{block}: all stored samples stay valid"
        reasons = ", ".join(self.because)
        return f"{block}: {self.valid} of {self.problems} problems stay valid ({reasons})"


@dataclass(frozen=True)
class Difference:
    """What a study does to the samples that an earlier one has stored.

    ``judged`` are the sets whose answers another verifier judges now.
    """

    blocks: tuple[BlockChange, ...]
    judged: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The difference as JSON-ready values."""
        return {
            "stored": [asdict(block) for block in self.blocks],
            "other_verifier": list(self.judged),
        }


def diff(old: Study, new: Study) -> Difference:
    """Compare a stored study with the one that is now asked for."""
    return Difference(tuple(_compare_blocks(old, new)), tuple(judged_otherwise(old, new)))


def judged_otherwise(old: Study, new: Study) -> list[str]:
    """Name the problem sets of both studies whose answers another verifier judges now.

    Their stored verdicts stay as they are. A set counts if its own verifier differs, or if a rule
    for all sets does: which verdict decides (``decides``).
    `_content_record` gives the values of a study file as plain dicts.
    """
    old_record = _content_record(old)
    new_record = _content_record(new)
    old_rules = old_record["verification"]
    new_rules = new_record["verification"]
    is_other_rule = old_rules["decides"] != new_rules["decides"]
    old_sets = old_record["problem_sets"]
    changed_sets = []
    for name, entry in new_record["problem_sets"].items():
        if name not in old_sets:
            continue
        if is_other_rule or entry["verifier"] != old_sets[name]["verifier"]:
            changed_sets.append(name)
    return changed_sets


def _content_record(study: Study) -> dict[str, Any]:
    """The study file's values; a plugin's file is its content, not its path."""
    record = study.file.model_dump(mode="json", by_alias=True)
    return cast(dict[str, Any], plugins.replace_references(record, study.plugins))


def _compare_blocks(old: Study, new: Study) -> Iterator[BlockChange]:
    """Yield what becomes of the stored samples of each block of the old study.

    A block is all samples of one arm on one problem set at one training step. One that the new
    study no longer asks for stays on disk and is not counted (``asked=False``).
    """
    requested = set(new.block_keys())
    for arm, set_name, step in old.block_keys():
        if (arm, set_name, step) in requested:
            yield _compare_block(old, new, arm, set_name, step)
        else:
            yield BlockChange(arm, set_name, step, valid=0, problems=0, asked=False)


_REASONS: Final = {
    "model": "other model content", "prompt": "other prompt", "problem": "other problem",
}  # fmt: skip


def _compare_block(old: Study, new: Study, arm: str, set_name: str, step: int) -> BlockChange:
    """Count the problems of a block whose stored samples stay valid, and say why others do not.

    A block is one arm, problem set and training step. A *request* is everything that determines a
    sample besides its index: model content, prompt, sampling setting and problem text. A problem's
    samples stay valid if its request is what it was.
    """
    stored = set(old.problem_ids(set_name))
    problem_ids = new.problem_ids(set_name)
    valid_count = 0
    reasons: dict[str, None] = {}  # each once, in the order in which they are found
    for problem in problem_ids:
        if problem not in stored:
            reasons["new problems"] = None
            continue
        old_request = old.request(arm, step, problem)
        new_request = new.request(arm, step, problem)
        if old_request == new_request:
            valid_count += 1
            continue
        for key in {**old_request, **new_request}:
            if old_request.get(key) != new_request.get(key):
                reasons[_REASONS.get(key, f"other {key}")] = None
    return BlockChange(arm, set_name, step, valid_count, len(problem_ids), tuple(reasons))
