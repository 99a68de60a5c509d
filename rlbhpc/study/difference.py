"""What changed between a stored study and the one asked for, and which samples stay valid.

A stored sample stays valid when everything that determined it is what it was: study seed, model
content, prompt, sampling setting and problem text. That is decided per problem, by fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

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
        """One line, as `rlbhpc check` prints it."""
        where = f"{self.arm}, {self.set_name}, step {self.step}"
        if not self.asked:
            return f"{where}: no longer asked for; its samples stay on disk"
        if self.valid == self.problems:
            return f"{where}: all stored samples stay valid"
        why = ", ".join(self.because)
        return f"{where}: {self.valid} of {self.problems} problems stay valid ({why})"


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
        tuple(_changes(old, new)), tuple(_blocks(old, new)), tuple(judged_otherwise(old, new))
    )


def judged_otherwise(old: Study, new: Study) -> list[str]:
    """Sets of both studies whose verifier is not what it was; stored verdicts stay as they are."""
    before, after = _written(old), _written(new)
    other_rule = any(
        before["verification"][key] != after["verification"][key] for key in ("code", "decides")
    )
    sets = before["problem_sets"]
    return [
        name
        for name, entry in after["problem_sets"].items()
        if name in sets and (other_rule or entry["verifier"] != sets[name]["verifier"])
    ]


def _changes(old: Study, new: Study) -> Iterator[Change]:
    """Differences of what is written, then of the contents of what is named."""
    before, after = dict(_flat("", _written(old))), dict(_flat("", _written(new)))
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            yield Change(key, before.get(key), after.get(key))
    for model, steps in new.digests.items():
        digests = old.digests.get(model, {})
        moved = [step for step, digest in steps.items() if digests.get(step, digest) != digest]
        for step in moved:
            yield Change(f"content of model {model}, step {step}", digests[step], steps[step])
    known_prompts = {name: prompt.digest for name, prompt in old.prompts.items()}
    for name, prompt in new.prompts.items():
        if known_prompts.get(name, prompt.digest) != prompt.digest:
            yield Change(f"text of prompt {name}", known_prompts[name], prompt.digest)
    for name, digest in new.text_digests.items():
        if old.text_digests.get(name, digest) != digest:
            yield Change(f"content of {name}", old.text_digests[name], digest)
    for name, hashes in new.problem_hashes.items():
        if name in old.problem_hashes:
            yield from _problem_changes(name, old.problem_hashes[name], hashes)


def _written(study: Study) -> dict[str, Any]:
    """The study file's values; a file of the study's own is its content, not its place."""
    record = study.file.model_dump(mode="json", by_alias=True)
    return cast(dict[str, Any], plugins.replace_references(record, study.plugins))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Key paths and scalars; lists stay whole, as their order has a meaning."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, inner)
    elif value not in (None, {}, []):
        yield prefix, value


def _problem_changes(
    name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[Change]:
    """How many problems of one set came, went, or have another text, and which first."""
    text = [i for i in after if before.get(i, after[i]) != after[i]]
    came = [i for i in after if i not in before]
    went = [i for i in before if i not in after]
    for what, ids in (("changed", text), ("added", came), ("removed", went)):
        if ids:
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            yield Change(f"problems {what} in {name}", None, f"{', '.join(ids[:3])}{more}")


def _blocks(old: Study, new: Study) -> Iterator[BlockChange]:
    required = set(new.places())
    for arm, set_name, step in old.places():
        if (arm, set_name, step) in required:
            yield _block(old, new, arm, set_name, step)
        else:
            yield BlockChange(arm, set_name, step, 0, 0, asked=False)


def _block(old: Study, new: Study, arm: str, set_name: str, step: int) -> BlockChange:
    stored = set(old.problem_ids(set_name))
    ids = new.problem_ids(set_name)
    valid, because = 0, dict[str, None]()
    for problem in ids:
        if problem not in stored:
            because["new problems"] = None
            continue
        before, after = old.request(arm, step, problem), new.request(arm, step, problem)
        if before == after:
            valid += 1
        else:
            keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
            because |= dict.fromkeys(map(_reason, keys))
    return BlockChange(arm, set_name, step, valid, len(ids), tuple(because))


def _reason(key: str) -> str:
    words = {"model": "other model content", "prompt": "other prompt", "problem": "other problem"}
    return words.get(key, f"other {key}")
