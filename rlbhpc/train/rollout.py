"""One rollout: prompts to judged responses, every sample with a seed of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.arm import Sampling
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.train.batch import Response
from rlbhpc.train.rewards import Judged
from rlbhpc.verify.verdict import Verdict


@dataclass(frozen=True)
class Prompt:
    """A problem with its prompt, tokenised once."""

    problem: Problem
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Rollout:
    """One response of a rollout, ready to be trained on."""

    problem: str
    group: int
    response: Response
    sampler_logprobs: NDArray[np.float32]
    entropy_sum: float
    truncated: bool
    text: str
    correct: bool
    reward: float
    greedy_reward: float = 0.0


@dataclass(frozen=True)
class Judge:
    """What turns a completion's text into a reward: a verifier and a reward function."""

    verify: Callable[[Problem, str], Verdict]
    reward: Callable[[Judged], float]


def draw_order(seed: int, n_prompts: int, start: int, count: int) -> list[int]:
    """Prompts number ``start`` … of an endless sequence of shuffled passes over the data.

    A counter is all the state there is: pass number e is the permutation of the generator
    (seed, e), whoever asks, and however often the run was interrupted.
    """
    drawn: list[int] = []
    while len(drawn) < count:
        epoch, offset = divmod(start + len(drawn), n_prompts)
        order = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(n_prompts)
        drawn += order[offset : offset + count - len(drawn)].tolist()
    return drawn


@dataclass(frozen=True)
class Draw:
    """Prompts to sample in one training step, and with what.

    ``first_group`` is the draw number of the first prompt in the whole run; ``run`` is (seed, model
    name, step). Together with the sample index they give each response its seed.
    """

    engine: Engine
    prompts: Sequence[Prompt]
    first_group: int
    run: tuple[int, str, int]
    max_tokens: int
    judge: Judge

    def seed(self, prompt: int, sample: int) -> int:
        """Seed of one response.

        The draw number enters beside the problem: a prompt that is drawn twice in one step must
        not give the same responses twice.
        """
        seed, model, step = self.run
        arm = f"train/{model}/{self.first_group + prompt}"
        return sample_seed(seed, SampleKey(arm, step, self.prompts[prompt].problem.id, sample))


def roll_out(draw: Draw, samples: int, temperature: float) -> list[Rollout]:
    """Sample and judge ``samples`` responses to each prompt, ordered by prompt and sample."""
    sampling = Sampling(temperature, 1.0, draw.max_tokens)
    requests = [
        Request(tag=p * samples + s, prompt_ids=prompt.ids, seed=draw.seed(p, s))
        for p, prompt in enumerate(draw.prompts)
        for s in range(samples)
    ]
    done: dict[int, Rollout] = {}
    for completion in draw.engine.generate(requests, sampling):
        done[completion.tag] = _judged(completion, draw, completion.tag // samples)
    return [done[tag] for tag in sorted(done)]


def _judged(completion: Completion, draw: Draw, prompt: int) -> Rollout:
    problem = draw.prompts[prompt].problem
    if completion.finish is Finish.ERROR:
        raise UserError(f"rollout of {problem.id}: {completion.error}")
    verdict = draw.judge.verify(problem, completion.text)
    judged = Judged(
        problem=problem,
        text=completion.text,
        n_tokens=len(completion.token_ids),
        max_tokens=draw.max_tokens,
        finish=completion.finish,
        verdict=verdict,
    )
    return Rollout(
        problem=problem.id,
        group=draw.first_group + prompt,
        response=Response(draw.prompts[prompt].ids, completion.token_ids),
        sampler_logprobs=completion.logprobs,
        entropy_sum=float(completion.entropies.sum(dtype=np.float64)),
        truncated=completion.finish is Finish.LENGTH,
        text=completion.text,
        correct=verdict.right,
        reward=draw.judge.reward(judged),
    )
