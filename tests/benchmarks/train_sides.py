"""One side of a comparison, as a process of its own: ``SIDE MODEL WORK``.

``us`` is this trainer, ``trl`` TRL's. Both take the same steps: the same model, prompts, lengths,
group size and loss. ``WORK`` is ``fixed`` (every response as long as allowed), ``uneven`` (lengths
uniform from 8 to the longest), or ``sampled`` (each side samples with its own engine). Before each
step it says so and waits to be told on its standard input; at the end it prints one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

MARK, TURN = "side: ", "turn"
STEPS, GROUP, PROMPTS = 15, 8, 8
ROWS = GROUP * PROMPTS
PROMPT = "Add 0123456789 to 98765."
LONGEST = {"fixed": 64, "sampled": 64, "uneven": 256}
RATE = 1e-5


def completions(work: str, step: int) -> list[list[int]]:
    """What both sides train on in a step."""
    draw = torch.Generator().manual_seed(step)
    shortest = 8 if work == "uneven" else LONGEST[work]
    lengths = torch.randint(shortest, LONGEST[work] + 1, (ROWS,), generator=draw).tolist()
    return [torch.randint(0, 256, (n,), generator=draw).tolist() for n in lengths]


def turn() -> None:
    """Wait until it is this side's turn."""
    print(MARK + TURN, flush=True)
    sys.stdin.readline()


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Any reward that differs within groups."""
    return [float(sum(ids) % 3) / 2 for ids in completion_ids]


def by_trl(model: Path, work: str) -> dict[str, Any]:
    """TRL's GRPO trainer; its first step warms up."""
    datasets, transformers, trl = map(importlib.import_module, ("datasets", "transformers", "trl"))

    class Timed(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.seconds: list[float] = []

        def _generate_single_turn(self, prompt_ids: list[list[int]], *words: Any) -> Any:
            if work == "sampled":
                return super()._generate_single_turn(prompt_ids, *words)
            return completions(work, len(self.seconds)), None

        def training_step(self, *words: Any, **more: Any) -> Any:
            turn()
            begun = time.process_time()
            loss = super().training_step(*words, **more)
            self.seconds.append(time.process_time() - begun)
            return loss

    class Stepped(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        """The optimiser's part of a step, which `training_step` leaves out."""

        begun = 0.0

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            self.begun = time.process_time()

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            trainer.seconds[-1] += time.process_time() - self.begun

    config = trl.GRPOConfig(
        output_dir=f"{model}.trl", max_steps=STEPS + 1, learning_rate=RATE, loss_type="dapo",
        per_device_train_batch_size=ROWS, num_generations=GROUP, beta=0.0, use_cpu=True,
        max_completion_length=LONGEST[work], lr_scheduler_type="constant",
        bf16=False, gradient_checkpointing=False, report_to="none",
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Timed(
        model=transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        reward_funcs=reward, args=config, callbacks=[Stepped()],
        train_dataset=datasets.Dataset.from_dict({"prompt": [PROMPT] * (STEPS + 1) * PROMPTS}),
        processing_class=transformers.AutoTokenizer.from_pretrained(model),
    )  # fmt: skip
    trainer.train()
    turn()
    return {"seconds": trainer.seconds[1:]}


def by_us(model: Path, work: str) -> dict[str, Any]:
    """The training loop's own parts: engine, advantages, learner, weights back to the engine."""
    from rlbhpc.engines.completion import Request
    from rlbhpc.engines.engine import make_engine
    from rlbhpc.engines.tokens import Tokens
    from rlbhpc.study.keys import Sampling
    from rlbhpc.train.algorithms import make_algorithm
    from rlbhpc.train.algorithms.algorithm import Signals
    from rlbhpc.train.batch import Response
    from rlbhpc.train.learner import Learner, Update, pad_rows
    from rlbhpc.train.settings import Settings

    algorithm = make_algorithm("grpo", "trl", aggregation="token")
    settings = Settings(
        steps=STEPS, prompts_per_step=PROMPTS, samples_per_prompt=GROUP, learning_rate=RATE,
        max_tokens=LONGEST[work],
        micro_tokens=16384,  # all at once, as TRL is told to
    )  # fmt: skip
    learner = Learner(model, settings, algorithm)
    prompt = Tokens(model).encode(PROMPT)
    engine = make_engine("hf", model, rows=ROWS) if work == "sampled" else None

    def made(step: int) -> list[tuple[list[int], Any]]:
        if engine is None:
            return [(ids, np.zeros(len(ids))) for ids in completions(work, step)]
        asked = [Request(i, prompt, step * ROWS + i) for i in range(ROWS)]
        found = engine.generate(asked, Sampling(1.0, 1.0, LONGEST[work]))
        in_order = sorted(found, key=lambda completion: completion.tag)
        return [(c.token_ids.tolist(), c.logprobs) for c in in_order]

    def step(number: int) -> None:
        rows, sampler = zip(*made(number), strict=True)
        signals = Signals(
            rewards=torch.tensor(reward(list(rows)), dtype=torch.float64),
            groups=torch.arange(ROWS) // GROUP,
            lengths=torch.tensor([len(ids) for ids in rows]),
        )
        learner.update(
            Update(
                responses=[Response(prompt, np.array(ids, np.int32)) for ids in rows],
                advantages=algorithm.advantages(signals).float(),
                sampler_logprobs=pad_rows(sampler),
                kept=torch.ones(ROWS, dtype=torch.bool),
            ),
            number,
        )
        if engine is not None:
            engine.load_weights(learner.named_weights())

    seconds = []
    for number in range(STEPS + 1):
        turn()
        begun = time.process_time()
        step(number)
        seconds.append(time.process_time() - begun)
    turn()
    if engine is not None:
        engine.close()
    return {"seconds": seconds[1:]}


def main(side: str, model: str, work: str) -> None:
    figures = (by_trl if side == "trl" else by_us)(Path(model), work)
    figures["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(MARK + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
