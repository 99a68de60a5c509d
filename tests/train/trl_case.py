"""Train with TRL on fixed completions and write down what it saw and where its weights ended.

Run as a process of its own: ``python trl_case.py MODEL OUT CASE``; CASE is ``rloo`` or a GRPO loss,
with ``+tools`` behind it for episodes, whose completions hold tokens of a tool.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train.trl_sizes import GROUP, LONGEST, PROMPTS, RATE, STEPS

# It exports nothing that a type checker would see.
trl: Any = importlib.import_module("trl")


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that depends on what was written, and is the same for whole groups now and then."""
    return [float(sum(ids) % 3) / 2 for ids in completion_ids]


def fixed(kind: type) -> type:
    """A trainer whose completions are drawn from a seed and kept, in the order it asked."""

    class Fixed(kind):  # type: ignore[misc]
        def __init__(self, *words: Any, **more: Any) -> None:
            super().__init__(*words, **more)
            self.seen: list[list[tuple[list[int], list[int], float, list[int]]]] = []

        def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any) -> Any:
            draw = torch.Generator().manual_seed(len(self.seen))
            out = []
            for _prompt in prompt_ids:
                length = int(torch.randint(3, LONGEST + 1, (), generator=draw))
                out.append(torch.randint(0, 256, (length,), generator=draw).tolist())
            masks = [[1] * len(ids) for ids in out]
            rows = zip(prompt_ids, out, reward(out), masks, strict=True)
            self.seen.append([(list(prompt), *row) for prompt, *row in rows])
            return out if kind is trl.RLOOTrainer else (out, None)

    return Fixed


def draw_episodes(prompts: list[str], trainer: Any) -> dict[str, Any]:
    """The same completions, of which a tool has written a stretch in the middle."""
    prompt_ids = trainer.processing_class(prompts)["input_ids"]
    completions, _ = trainer._generate_single_turn(prompt_ids)
    masks = []
    for *_, mask in trainer.seen[-1]:
        mask[len(mask) // 3 : len(mask) // 2] = [0] * (len(mask) // 2 - len(mask) // 3)
        masks.append(mask)
    return {
        "prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": None,
        "env_mask": masks,
    }  # fmt: skip


def main(model: str, out: str, case: str) -> None:
    shared: dict[str, Any] = {
        "output_dir": f"{out}.trl", "max_steps": STEPS, "learning_rate": RATE,
        "per_device_train_batch_size": GROUP * PROMPTS, "num_generations": GROUP,
        "max_completion_length": LONGEST, "lr_scheduler_type": "constant", "beta": 0.0,
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none",
        "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    more: dict[str, Any] = {}
    if case == "rloo":
        kind, config = trl.RLOOTrainer, trl.RLOOConfig(**shared)
    else:
        loss, _, tools = case.partition("+")
        kind, config = trl.GRPOTrainer, trl.GRPOConfig(loss_type=loss, **shared)
        more = {"rollout_func": draw_episodes} if tools else {}
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    prompts = [f"Add up {i} and {i + 7}, please" for i in range(STEPS * PROMPTS)]
    trainer = fixed(kind)(
        model=policy, reward_funcs=reward, args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=AutoTokenizer.from_pretrained(model), **more,
    )  # fmt: skip
    trainer.train()
    weights = {name: p.detach().clone() for name, p in policy.named_parameters()}
    torch.save({"seen": trainer.seen, "weights": weights}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
