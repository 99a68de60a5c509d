"""Many responses at once: each distinct answer to a problem is judged once.

At large k wrong answers repeat and right ones nearly always do, so a million responses hold some
ten thousand distinct pairs of problem and answer. Only those are judged; the rest is one look into
a dictionary.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.registry import NO_ANSWER, OwnVerifier, Verifier, guarded, takes_finish, verifier
from rlbhpc.verify.running.pool import SECONDS, OwnProcess
from rlbhpc.verify.verdict import Status, Verdict

# --- verdicts that need not be found twice -------------------------------------------------------

# A verdict belongs to (grader fingerprint, problem content, canonical answer), so a re-run,
# another checkpoint and another model share it. Each writer appends to a file of its own; a reader
# takes every line whose checksum holds, in whatever state a crash left the file, and says how many
# it skipped. Timeouts and errors are never kept: they say something of a machine, not of an
# answer.

KEPT: Final = frozenset((Status.RIGHT, Status.WRONG, Status.NO_ANSWER))

# A kept verdict: its status and the rule that decided.
Entry = tuple[Status, str]


class VerdictCache:
    """The verdicts of one grader under one folder.

    ``folder``: shared by all graders (``Layout.verdict_cache``); each has a folder of its own below
    it. ``fingerprint``: the grader's ``FINGERPRINT``.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.folder = folder / hashlib.blake2b(fingerprint.encode(), digest_size=8).hexdigest()
        self.skipped = 0
        self._known: dict[str, Entry] = {}
        self._fresh: list[str] = []
        self._file: int | None = None
        for path in sorted(self.folder.glob("*.verdicts")):
            self._load(path)

    def __len__(self) -> int:
        return len(self._known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def key(gold: str, problem: Problem | None, form: str) -> str:
        """32 hex digits over the problem's content (or its gold answer alone) and an answer."""
        content = f"gold {gold}" if problem is None else f"problem {problem.content_hash} {gold}"
        digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16)
        digest.update(b"\0" + form.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def get(self, key: str) -> Entry | None:
        """Return what is known of a pair."""
        return self._known.get(key)

    def put(self, key: str, status: Status, rule: str) -> None:
        """Keep a verdict; it reaches the disk with the next :meth:`flush`."""
        if status not in KEPT or key in self._known:
            return
        rule = " ".join(rule.split())[:200]
        self._known[key] = (status, rule)
        self._fresh.append(_line(f"{key} {int(status)} {rule}"))

    def flush(self) -> None:
        """Append what is new in one write, so that a kill leaves whole lines and one torn tail."""
        if not self._fresh:
            return
        if self._file is None:
            self._file = self._create()
        data = "".join(self._fresh).encode("utf-8", "replace")
        self._fresh.clear()
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Flush, make it durable, and let go of the file."""
        self.flush()
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _create(self) -> int:
        """Open a file that nobody else writes; its first line names the grader."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.verdicts"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        handle = os.open(self.folder / name, flags, 0o644)
        os.write(handle, _line(f"grader {self.fingerprint}").encode())
        return handle

    def _load(self, path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        if not lines or _checked(lines[0]) != f"grader {self.fingerprint}":
            self.skipped += len(lines)
            return
        for line in lines[1:]:
            text = _checked(line) if line else None
            if text is None:
                self.skipped += bool(line)
                continue
            key, status, rule = text.split(" ", 2)
            self._known.setdefault(key, (Status(int(status)), rule))


def _line(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x} {text}\n"


def _checked(line: bytes) -> str | None:
    """Return the text of a line whose checksum holds."""
    mark, _, body = line.partition(b" ")
    if len(mark) != 8 or mark != f"{zlib.crc32(body):08x}".encode():
        return None
    return body.decode("utf-8", "replace")


# --- batches -------------------------------------------------------------------------------------

# Gold answer, response, problem and, where it is known, how the response ended.
Item = tuple[str, str, Problem | None] | tuple[str, str, Problem | None, str]

# Forgotten after the call, as is what a failed call did not judge: the next one tries again.
_PASSING: Final = frozenset((Status.TIMEOUT, Status.ERROR, Status.MISSING))
_UNSEEN: Final = Verdict(Status.MISSING)


@dataclass
class Tally:
    """What a batch verifier has done so far."""

    responses: int = 0
    judged: int = 0
    from_cache: int = 0
    timeouts: int = 0
    errors: int = 0
    last_error: str = ""
    seconds: float = 0.0

    @property
    def factor(self) -> float:
        """How many responses one judgement served."""
        return self.responses / max(1, self.judged)

    def __str__(self) -> str:
        return (
            f"{self.responses} responses, {self.judged} judged ({self.factor:.1f} responses each), "
            f"{self.from_cache} from the cache, {self.timeouts} timeouts, {self.errors} errors"
        )


class _New(NamedTuple):
    """A distinct pair of problem and answer that no verdict is known of."""

    slot: int
    item: tuple[str, str, Problem | None, str]
    part: str
    group: dict[tuple[str, bool], int]
    answer: object
    stated: bool
    key: str = ""


class BatchVerifier:
    """Judges many responses of one kind and remembers what it has judged.

    ``kind``: a verifier of the registry. ``cache``: where verdicts of earlier runs are; its
    fingerprint must be the verifier's. ``workers``: threads for a verifier that mostly waits for
    processes of its own. ``seconds``: processor time for a response to a verifier of the study's
    own, which is called in another process.
    """

    def __init__(
        self, kind: str, cache: VerdictCache | None = None, workers: int = 1,
        seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        self.module: Verifier = verifier(kind)
        # Here, since it may test the sandbox: each thread would, and hold up the others' tests.
        fingerprint = self.module.FINGERPRINT
        if cache is not None and cache.fingerprint != fingerprint:
            raise ValueError(f"cache of {cache.fingerprint!r} given to {fingerprint!r}")
        self.kind = kind
        self.cache = cache
        self.workers = workers
        self.tally = Tally()
        self._own: OwnProcess | None = None
        if isinstance(self.module, OwnVerifier):
            self._own = OwnProcess(kind, fingerprint, seconds)
        self._judge_extracted: Callable[..., Verdict] | None
        self._judge_extracted = getattr(self.module, "judge_extracted", None)
        self._canonical: Callable[[str], str] = getattr(self.module, "canonical", str)
        self._groups: dict[tuple[str, str], dict[tuple[str, bool], int]] = {}
        self._verdicts: list[Verdict] = []

    def verify_many(self, items: Sequence[Item]) -> list[Verdict]:
        """Judge all items and return their verdicts in order.

        Equal answers to one problem share one :class:`Verdict` object.
        """
        start = time.perf_counter()
        new: list[_New] = []
        try:
            slots = self._slots(items, new)
            self._settle(new)
        finally:
            self._forget_passing(new)
        verdicts = self._verdicts
        answers = [verdicts[slot] for slot in slots]
        if self.cache is not None:
            self.cache.flush()
        self.tally.responses += len(items)
        self.tally.seconds += time.perf_counter() - start
        return answers

    def _slots(self, items: Sequence[Item], new: list[_New]) -> list[int]:
        """Give each item the number of its distinct pair, and list in ``new`` those that are."""
        whole = _response_and_end if takes_finish(self.module.verify) else str
        distinct: Callable[..., str] = getattr(self.module, "distinct", whole)
        asks = takes_finish(distinct)
        groups, verdicts = self._groups, self._verdicts
        extract = getattr(self.module, "extract", None) if self._judge_extracted else None
        slots: list[int] = []
        group: dict[tuple[str, bool], int] = {}
        last: tuple[str, Problem | None] | None = None
        for item in items:
            gold, response, problem, finish = item if len(item) == 4 else (*item, "")
            if last is None or gold is not last[0] or problem is not last[1]:
                last = (gold, problem)
                # Imported problems may not hold their question: the id tells them apart.
                name = (gold, "" if problem is None else f"{problem.content_hash} {problem.id}")
                group = groups.setdefault(name, {})
            if extract is None:
                answer, stated = None, True
                part = distinct(response, finish) if asks else distinct(response)
            else:
                answer = extract(response, finish)
                part = NO_ANSWER if answer is None else answer.text
                stated = answer is None or answer.stated
            slot = group.get((part, stated))
            if slot is None:
                slot = group[part, stated] = len(verdicts)
                verdicts.append(_UNSEEN)
                asked = (gold, response, problem, finish)
                new.append(_New(slot, asked, part, group, answer, stated))
            slots.append(slot)
        return slots

    def _settle(self, new: Sequence[_New]) -> None:
        """Find the verdicts of new pairs: in the cache, or by judging them."""
        unjudged = new if self.cache is None else self._not_in(self.cache, new)
        for pair, verdict in zip(unjudged, self._judge(unjudged), strict=True):
            self._verdicts[pair.slot] = verdict
            self.tally.judged += 1
            self.tally.timeouts += verdict.status is Status.TIMEOUT
            if verdict.status is Status.ERROR:
                self.tally.errors += 1
                self.tally.last_error = verdict.rule
            # Kept only if it would come back as it was: `choice`, say, names the option instead.
            if self.cache is not None and verdict.canonical == self._form(pair):
                self.cache.put(pair.key, verdict.status, verdict.rule)

    def _not_in(self, cache: VerdictCache, new: Sequence[_New]) -> list[_New]:
        """Take verdicts from the cache; the pairs that it lacks, with their keys."""
        missing: list[_New] = []
        for pair in new:
            gold, _, problem, _ = pair.item
            form = self._canonical(pair.part)
            key = cache.key(gold, problem, form if pair.stated else f"{form}\0")
            entry = cache.get(key)
            if entry is None:
                missing.append(pair._replace(key=key))
                continue
            status, rule = entry
            answer = pair.part if status is not Status.NO_ANSWER else ""
            self._verdicts[pair.slot] = Verdict(
                status, answer, self._form(pair), rule, self.module.FINGERPRINT, stated=pair.stated
            )
            self.tally.from_cache += 1
        return missing

    def _form(self, pair: _New) -> str:
        """Canonical answer of a verdict from the cache."""
        return self._canonical("" if pair.part == NO_ANSWER else pair.part)

    def _judge(self, pairs: Sequence[_New]) -> list[Verdict]:
        """Judge pairs one by one, or in threads where the verifier only waits in them."""
        if self._own is not None:
            return [self._own.verdict(*pair.item) for pair in pairs]
        if self.workers == 1 or not getattr(self.module, "CONCURRENT", False):
            return [self._verdict(pair) for pair in pairs]
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(self._verdict, pairs))

    def _verdict(self, pair: _New) -> Verdict:
        if self._judge_extracted is None:
            *asked, finish = pair.item
            return guarded(self.module, self.module.verify, *asked, finish=finish)
        gold, _, problem, _ = pair.item
        return guarded(self.module, self._judge_extracted, gold, pair.answer, problem)

    def _forget_passing(self, new: Sequence[_New]) -> None:
        """Let timeouts, errors and what was not judged be tried again by the next call."""
        for pair in new:
            if self._verdicts[pair.slot].status in _PASSING:
                del pair.group[pair.part, pair.stated]


def _response_and_end(response: str, finish: str) -> str:
    return f"{response}\0{finish}"


def verify_many(kind: str, items: Sequence[Item], workers: int = 1) -> list[Verdict]:
    """Judge many (gold, response, problem) at once with the verifier of ``kind``."""
    return BatchVerifier(kind, workers=workers).verify_many(items)
