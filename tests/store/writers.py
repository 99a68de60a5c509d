"""Writers of samples under one test: kill them while they write, flip bits of what they wrote.

``python -m tests.store.writers NAME`` prints one row of the table in docs/samples-on-disk.md. The
packages of others are needed only for their own rows; put this checkout on PYTHONPATH of an
environment that has them. To add a writer, write two functions and a line of :data:`WRITERS`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

COUNT: Final = 200
#: Called with a sample's number when its writer takes the sample for finished.
Ack = Callable[[int], None]
#: Text by number, and whether the reader says that something is wrong.
Read = tuple[dict[int, str], bool]


class Writer(NamedTuple):
    """Writes samples into a folder; reads what is there, with an exception where it can't."""

    write: Callable[[Path, int, Ack], None]
    read: Callable[[Path], Read]


def text(number: int) -> str:
    """A response of about a kilobyte that follows from its number."""
    lot = random.Random(number)
    return f"{number}: " + " ".join(f"token{lot.randrange(500)}" for _ in range(120))


# --- plain JSONL -------------------------------------------------------------------------------


def write_jsonl(folder: Path, count: int, ack: Ack) -> None:
    with (folder / "samples.jsonl").open("a") as file:
        for number in range(count):
            file.write(json.dumps({"number": number, "text": text(number)}) + "\n")
            ack(number)


def write_flushed_jsonl(folder: Path, count: int, ack: Ack) -> None:
    with (folder / "samples.jsonl").open("a") as file:
        for number in range(count):
            file.write(json.dumps({"number": number, "text": text(number)}) + "\n")
            file.flush()
            ack(number)


def read_jsonl(folder: Path) -> Read:
    with (folder / "samples.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    return {row["number"]: row["text"] for row in rows}, False


# --- rlbhpc's journal --------------------------------------------------------------------------


def write_journal(folder: Path, count: int, ack: Ack) -> None:
    from rlbhpc.store.journal import JournalWriter
    from rlbhpc.study.layout import Layout
    from tests.store import made

    sample: Any = made.sample(0, 0)
    with JournalWriter(Layout(folder).journals(made.ARM, made.SET), "attempt") as writer:
        for number in range(count):
            fields = {name: getattr(sample, name) for name in sample.__dataclass_fields__}
            key = sample.key._replace(sample=number)
            writer.append(type(sample)(**fields | {"key": key, "text": text(number)}))
            ack(number)


def read_journal(folder: Path) -> Read:
    from rlbhpc.store.left_out import TORN
    from rlbhpc.study.layout import Layout
    from tests.store import made, reading

    rows = reading.rows(Layout(folder), made.ARM, made.SET)
    texts = dict(zip(rows.table["sample"].to_pylist(), rows.table["text"].to_pylist(), strict=True))
    return texts, any(skipped.kind != TORN for skipped in rows.skipped)


# --- inspect_ai --------------------------------------------------------------------------------


def write_inspect(folder: Path, count: int, ack: Ack) -> None:
    from inspect_ai import Task, eval  # noqa: A004
    from inspect_ai.dataset import Sample
    from inspect_ai.hooks import Hooks, SampleEnd, hooks
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    class Acknowledge(Hooks):
        async def on_sample_end(self, data: SampleEnd) -> None:
            ack(int(data.sample.id))

    hooks("acknowledge", "Say which sample ended")(Acknowledge)
    dataset = [Sample(id=i, input=str(i), target="1") for i in range(count)]

    def answer(messages: Any, *_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", text(int(messages[-1].text)))
        output.usage = ModelUsage()  # else a tokenizer is fetched to count tokens
        return output

    model = get_model("mockllm/model", custom_outputs=answer)
    eval(Task(dataset=dataset), model=model, log_dir=str(folder), display="none")


def read_inspect(folder: Path) -> Read:
    """What the log has after `inspect log recover`, if that has anything to recover."""
    from contextlib import suppress

    from inspect_ai.log import read_eval_log
    from inspect_ai.log._recover import recover_eval_log
    from inspect_ai.log._recover._api import RecoveryNotAvailable

    (log,) = folder.glob("*.eval")
    with suppress(RecoveryNotAvailable):
        recover_eval_log(str(log), overwrite=True)
    whole = read_eval_log(str(sorted(folder.glob("*.eval"))[-1]))
    # A sample that was under way is kept without a response.
    return {
        int(s.id): s.output.completion for s in whole.samples or [] if s.output.completion
    }, whole.status == "error"


# --- lm-eval -----------------------------------------------------------------------------------


def write_lm_eval(folder: Path, count: int, ack: Ack) -> None:
    """As its command line does: all samples are handed to the tracker after the last one."""
    from lm_eval.loggers import EvaluationTracker

    tracker = EvaluationTracker(output_path=str(folder))
    samples = []
    for number in range(count):
        samples.append(
            {
                "doc_id": number,
                "doc": {},
                "target": "1",
                "arguments": [("", {})],
                "resps": [[text(number)]],
                "filtered_resps": [text(number)],
                "doc_hash": "",
                "prompt_hash": "",
                "target_hash": "",
            }
        )
        ack(number)
    tracker.save_results_aggregated(results={"results": {}}, samples={"task": samples})
    tracker.save_results_samples(task_name="task", samples=samples)


def read_lm_eval(folder: Path) -> Read:
    (file,) = folder.rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {row["doc_id"]: row["filtered_resps"][0] for row in rows}, False


WRITERS: Final = {
    "rlbhpc": Writer(write_journal, read_journal),
    "jsonl": Writer(write_jsonl, read_jsonl),
    "jsonl-flushed": Writer(write_flushed_jsonl, read_jsonl),
    "inspect_ai": Writer(write_inspect, read_inspect),
    "lm-eval": Writer(write_lm_eval, read_lm_eval),
}


# --- the test ----------------------------------------------------------------------------------


#: What a writer and its reader lost: processes that were killed (``kills``), after how many of them
#: nothing could be read (``unreadable``), the most finished samples that any of them ``lost``;
#: flipped bits (``flips``), how many changed no sample (``harmless``), were ``told`` by the reader,
#: or were not (``silent``), and the most samples that a flip cost where it was told
#: (``lost_by_flip``).
Losses = Counter[str]


def killed(name: str, folder: Path, after: int) -> set[int]:
    """Kill a writer when it has finished some samples: the numbers of those that it finished."""
    command = [sys.executable, "-m", "tests.store.writers", name, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = list(itertools.islice(child.stdout, after))
        child.kill()
        lines += child.stdout.readlines()
    return {int(line) for line in lines if line.endswith("\n")}


def read(name: str, folder: Path) -> Read:
    """What can be read; an exception of any kind tells that something is wrong."""
    try:
        return WRITERS[name].read(folder)
    except Exception:
        return {}, True


def kill(name: str, losses: Losses, times: int) -> None:
    """Kill a writer at random moments and count what it lost."""
    lot = random.Random(1)
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            finished = killed(name, Path(folder), lot.randrange(1, COUNT))
            texts, _ = read(name, Path(folder))
            intact = {number for number in finished if texts.get(number) == text(number)}
            losses["kills"] += 1
            losses["unreadable"] += not texts
            losses["lost"] = max(losses["lost"], len(finished) - len(intact))


def flip(name: str, losses: Losses, times: int) -> None:
    """Flip single bits of a finished run and count what its reader says."""
    lot = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        killed(name, Path(folder), 2 * COUNT)  # it ends by itself before that
        whole, _ = read(name, Path(folder))
        assert whole == {number: text(number) for number in range(COUNT)}
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        sizes = [path.stat().st_size for path in paths]
        for _ in range(times):
            (path,) = lot.choices(paths, sizes)
            before = path.read_bytes()
            after = bytearray(before)
            after[lot.randrange(len(after))] ^= 1 << lot.randrange(8)
            path.write_bytes(after)
            texts, told = read(name, Path(folder))
            path.write_bytes(before)
            losses["flips"] += 1
            if told:
                losses["told"] += 1
                losses["lost_by_flip"] = max(losses["lost_by_flip"], COUNT - len(texts))
            elif texts == whole:
                losses["harmless"] += 1
            else:
                losses["silent"] += 1


def main() -> None:
    """Print what a writer lost; with a folder, be the writer that is killed."""
    name, *folder = sys.argv[1:]
    if folder:
        out = os.dup(1)
        os.dup2(2, 1)
        WRITERS[name].write(Path(folder[0]), COUNT, lambda n: os.write(out, b"%d\n" % n))
        return
    losses = Losses()
    kill(name, losses, 30)
    flip(name, losses, 300)
    print(name, losses)


if __name__ == "__main__":
    main()
