"""What changed between a stored study and the one asked for, and which samples stay valid.

A stored sample stays valid when everything that determined it is what it was: study seed, model
content, prompt, sampling setting and problem text. That is decided per problem, by fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from rlbhpc import plugins
from rlbhpc.study.study import Study


@dataclass(frozen=True)
class Change:
    """One thing that is not what it was; None stands for absent."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """One line, as `rlbhpc check` prints it."""
        if self.old is None:
            return f"{self.key}: new, {self.new}"
        if self.new is None:
            return f"{self.key}: gone, was {self.old}"
        return f"{self.key}: {self.old} -> {self.new}"


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

    def __str__(self) -> str:
        """One line, as `rlbhpc check` prints it.

        A block is all samples of one arm (a model under one prompt and sampling setting) on one
        problem set at one training step. ``valid`` of its ``problems`` keep their stored samples.
        """
        block = f"{self.arm}, {self.set_name}, step {self.step}"
        if not self.asked:
            return f"{block}: no longer asked for; its samples stay on disk"
        if self.valid == self.problems:
            return f"{block}: all stored samples stay valid"
        reasons = ", ".join(self.because)
        return f"{block}: {self.valid} of {self.problems} problems stay valid ({reasons})"


@dataclass(frozen=True)
class Difference:
    """Everything that differs between two studies.

    ``judged`` are the sets whose answers another verifier judges now.
    """

    changes: tuple[Change, ...]
    blocks: tuple[BlockChange, ...]
    judged: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The difference as JSON-ready values."""
        return {
            "changes": [asdict(change) for change in self.changes],
            "stored": [asdict(block) for block in self.blocks],
            "other_verifier": list(self.judged),
        }


def diff(old: Study, new: Study) -> Difference:
    """Compare a stored study with the one that is now asked for."""
    return Difference(
        changes=tuple(_find_changes(old, new)),
        blocks=tuple(_compare_blocks(old, new)),
        judged=tuple(judged_otherwise(old, new)),
    )


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


def _find_changes(old: Study, new: Study) -> Iterator[Change]:
    """Yield what differs between two studies: values first, then contents.

    `_flatten` gives the values of a study file by dotted key. `_named_digests` gives the digests of
    what the file names (models, prompts, texts): the same name may have other contents now.
    ``problem_hashes`` has a hash for every problem of every set. A `Change` has a key, the old
    value and the new one; None is absent.
    """
    old_values = dict(_flatten("", _content_record(old)))
    new_values = dict(_flatten("", _content_record(new)))
    for key in {**old_values, **new_values}:
        if old_values.get(key) != new_values.get(key):
            yield Change(key, old_values.get(key), new_values.get(key))
    old_digests = _named_digests(old)
    for name, digest in _named_digests(new).items():
        if old_digests.get(name, digest) != digest:
            yield Change(name, old_digests[name], digest)
    for set_name, hashes in new.problem_hashes.items():
        if set_name in old.problem_hashes:
            yield from _problem_changes(set_name, old.problem_hashes[set_name], hashes)


def _named_digests(study: Study) -> dict[str, str]:
    """Return the content digests of a study's models, prompts and text files, each under a phrase.

    The phrases, such as ``content of model rl, step 100``, are what a reader is shown.
    """
    digests = {}
    for model, by_step in study.digests.items():
        for step, digest in by_step.items():
            digests[f"content of model {model}, step {step}"] = digest
    for name, prompt in study.prompts.items():
        digests[f"text of prompt {name}"] = prompt.digest
    for file, digest in study.text_digests.items():
        digests[f"content of {file}"] = digest
    return digests


def _content_record(study: Study) -> dict[str, Any]:
    """The study file's values; a plugin's file is its content, not its path."""
    record = study.file.model_dump(mode="json", by_alias=True)
    return cast(dict[str, Any], plugins.replace_references(record, study.plugins))


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Key paths and scalars; lists stay whole, as their order has a meaning."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flatten(f"{prefix}.{key}" if prefix else key, inner)
    elif value not in (None, {}, []):
        yield prefix, value


def _problem_changes(
    set_name: str, old_hashes: Mapping[str, str], new_hashes: Mapping[str, str]
) -> Iterator[Change]:
    """Yield a line each for the problems of one set that changed, were added or were removed.

    Both mappings give, by problem id, the hash of the problem's content. A line says at most three
    ids and how many more there are.
    """
    in_both = old_hashes.keys() & new_hashes.keys()
    ids_by_change = {
        "changed": [i for i in new_hashes if i in in_both and new_hashes[i] != old_hashes[i]],
        "added": [i for i in new_hashes if i not in in_both],
        "removed": [i for i in old_hashes if i not in in_both],
    }
    for word, ids in ids_by_change.items():
        if ids:
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            yield Change(f"problems {word} in {set_name}", None, f"{', '.join(ids[:3])}{more}")


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
