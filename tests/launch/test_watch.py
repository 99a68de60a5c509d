"""Checkpoints of other trainings: which are taken and when, and the samples of a watched one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.launch.watch import CheckpointKeeper, checkpoint_signature, has_whole_weights
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from tests.launch.made import ROOT

# What a save of each trainer leaves, as far as names go; all but the last of each hold weights.
FOLDERS = {
    "checkpoint-20": ["model.safetensors", "trainer_state.json", "optimizer.pt"],
    "global_step_20": ["actor/model_world_size_1_rank_0.pt", "actor/optim_world_size_1_rank_0.pt"],
    "global_step20_hf": ["model.safetensors", "rng_state.pth"],
    "step_20": ["model.safetensors", "scheduler.pt"],
}
HEADER = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(8)


def save(training: Path, name: str = "checkpoint-20", weights: bytes = WEIGHTS) -> Path:
    """Save as a trainer does."""
    for file in FOLDERS.get(name, ["model.safetensors", "optimizer.pt"]):
        path = training / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(weights)
    return training / name


@pytest.fixture
def keeper(tmp_path: Path) -> CheckpointKeeper:
    for name in ("training", "kept"):
        (tmp_path / name).mkdir()
    return CheckpointKeeper(tmp_path / "training", tmp_path / "kept")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_checkpoint_is_taken_at_the_second_look_without_what_only_its_trainer_needs(
    keeper: CheckpointKeeper, name: str
) -> None:
    save(keeper.training_folder, name)
    assert keeper.take_finished() == []
    assert keeper.take_finished() == [20]
    assert keeper.take_finished() == []
    kept = {str(p.relative_to(keeper.kept_folder)) for p in keeper.kept_folder.rglob("*.*")}
    assert kept == {f"step-20/{file}" for file in FOLDERS[name][:-1]}


def test_a_checkpoint_outlives_its_removal_by_the_training(keeper: CheckpointKeeper) -> None:
    saved = save(keeper.training_folder)
    keeper.take_finished()
    keeper.take_finished()
    shutil.rmtree(saved)
    assert keeper.take_finished() == []
    assert keeper.kept_steps() == [20]
    assert has_whole_weights(keeper.kept_folder / "step-20")


def test_half_written_weights_are_left_until_they_are_whole(keeper: CheckpointKeeper) -> None:
    save(keeper.training_folder, weights=WEIGHTS[:-1])
    assert [keeper.take_finished() for _ in range(3)] == [[], [], []]
    save(keeper.training_folder)
    assert [keeper.take_finished() for _ in range(2)] == [[], [20]]


def test_weights_that_an_index_announces_are_waited_for(keeper: CheckpointKeeper) -> None:
    saved = save(keeper.training_folder)
    index = '{"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}'
    (saved / "model.safetensors.index.json").write_text(index)
    assert not has_whole_weights(saved)
    (saved / "model-2.safetensors").write_bytes(WEIGHTS)
    assert has_whole_weights(saved)


def test_a_training_that_restarts_replaces_the_steps_that_it_writes_again(
    keeper: CheckpointKeeper,
) -> None:
    save(keeper.training_folder)
    keeper.take_finished()
    keeper.take_finished()
    shutil.rmtree(keeper.training_folder / "checkpoint-20")
    other = WEIGHTS[:-1] + b"\1"
    saved = save(keeper.training_folder, weights=other)
    os.utime(saved / "model.safetensors", (1, 1))
    assert [keeper.take_finished() for _ in range(2)] == [[], [20]]
    assert (keeper.kept_folder / "step-20/model.safetensors").read_bytes() == other
    assert checkpoint_signature(saved) == checkpoint_signature(keeper.kept_folder / "step-20")


def test_only_wanted_steps_are_taken(keeper: CheckpointKeeper) -> None:
    keeper.every_steps = 20
    for step in (10, 20, 30, 40):
        save(keeper.training_folder, f"checkpoint-{step}")
    keeper.take_finished()
    assert keeper.take_finished() == [20, 40]


RLBHPC = (sys.executable, "-m", "rlbhpc")
TRAINING = """
import sys
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
folder, model = sys.argv[1:]
data = Dataset.from_list([{"prompt": f"{n}+1="} for n in range(8)])
settings = GRPOConfig(
    output_dir=folder, use_cpu=True, bf16=False, report_to=[], max_steps=5, save_steps=1,
    save_total_limit=2, per_device_train_batch_size=2, num_generations=2, max_completion_length=6,
    learning_rate=1e-3, seed=0, logging_steps=1000,
)
def reward(completions, **_):
    return [float(len(text)) for text in completions]
GRPOTrainer(model, reward, settings, train_dataset=data).train()
"""


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_a_training_by_trl_is_followed_through_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
) -> None:
    """Its checkpoints vanish by `save_total_limit`; later sampling draws the same."""
    for name, text in {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(tmp_path)
    make_tiny_model(tmp_path / "base")
    (tmp_path / "grpo").mkdir()
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    training = subprocess.Popen([sys.executable, "train.py", "grpo", "base"])
    words = ("watch", "grpo", "--base", "base", "--cluster", "local", "--on", "sums.jsonl", "--n",
             "4", "--prompt", "completion", "--set", "sampling.max_tokens=8", "--last", "5",
             "--seconds", "0.3")  # fmt: skip
    chance = random.Random(0)
    for _ in range(10 if soak else 2):
        watching = subprocess.Popen(
            [sys.executable, "-m", "rlbhpc", *words], start_new_session=True
        )
        try:
            watching.wait(chance.uniform(3, 20))
        except subprocess.TimeoutExpired:
            os.killpg(watching.pid, signal.SIGKILL)
            watching.wait()
    assert training.wait(300) == 0
    subprocess.run([*RLBHPC, *words], check=True, timeout=500)
    study = tmp_path / "grpo-against-base.yaml"
    watched = load_study(study)
    steps = watched.file.models["trained"].steps
    assert steps is not None and steps[-1] == 5
    again = ("--set", f"output={tmp_path / 'again'}", "--set", "sampling.max_tokens=8")
    subprocess.run([*RLBHPC, "sample", study, *again], check=True)
    pair = [open_cube(Layout(root).root) for root in (watched.layout.root, tmp_path / "again")]
    for path in ("base/sums", "trained/sums"):
        first, second = (tree[path].to_dataset() for tree in pair)
        assert first["step"].equals(second["step"])
        assert first["logprob_sum"].equals(second["logprob_sum"])
        assert first["verdict"].equals(second["verdict"])
