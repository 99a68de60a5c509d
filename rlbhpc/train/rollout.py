"""One rollout: prompts to judged responses, every sample with a seed of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan

import numpy as np
from numpy.typing import NDArray

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.engines.hf.sight import Sight
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.arm import Sampling
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.train.batch import Response, Shown
from rlbhpc.train.rewards import Judged
from rlbhpc.verify.verdict import Status, Verdict

NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True)
class Prompt:
    """A problem with its prompt, tokenised once; an image is marked by one token."""

    problem: Problem
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Rollout:
    """One response of a rollout, ready to be trained on.

    ``reward`` is NaN where the response could not be scored: it is not learnt from, and no other's
    baseline counts it.
    """

    problem: str
    gold: str
    group: int
    response: Response
    sampler_logprobs: NDArray[np.float32]
    entropy_sum: float
    truncated: bool
    text: str
    verdict: Verdict
    reward: float
    greedy_reward: float = 0.0
    part: int = 0

    @property
    def correct(self) -> bool:
        """Whether the verifier found it right."""
        return self.verdict.right


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
    name, step). Together with the sample index they give each response its seed. ``tolerant``: a
    prompt that the model cannot hold is not the user's mistake, and its response cannot be scored.
    """

    engine: Engine
    prompts: Sequence[Prompt]
    first_group: int
    run: tuple[int, str, int]
    max_tokens: int
    judge: Judge
    sight: Sight | None = None
    tolerant: bool = False

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
    read = [read_prompt(prompt, draw.sight) for prompt in draw.prompts]
    pictures = [response.prompt[1] for response in read]
    requests = [
        Request(p * samples + s, prompt.ids, draw.seed(p, s), pictures[p])
        for p, prompt in enumerate(draw.prompts)
        for s in range(samples)
    ]
    done: dict[int, Rollout] = {}
    for completion in draw.engine.generate(requests, sampling):
        prompt = completion.tag // samples
        response = replace(read[prompt], token_ids=completion.token_ids)
        seed = requests[completion.tag].seed
        done[completion.tag] = _judged(completion, draw, prompt, response, seed)
    return [done[tag] for tag in sorted(done)]


def read_prompt(prompt: Prompt, sight: Sight | None) -> Response:
    """What a policy reads of a prompt, with no response yet."""
    images = prompt.problem.pictures
    if not images:
        return Response(prompt.ids, NOTHING)
    if sight is None:
        raise UserError(f"{prompt.problem.id} has images, which this model cannot be shown")
    try:
        ids = sight.expand(prompt.ids, images)
        places = np.flatnonzero(np.array(ids) == sight.mark)
        return Response(ids, NOTHING, Shown(images, places, sight.positions(ids, images)))
    except UserError as error:
        raise UserError(f"rollout of {prompt.problem.id}: {error}") from None


def _judged(
    completion: Completion, draw: Draw, prompt: int, response: Response, seed: int
) -> Rollout:
    problem = draw.prompts[prompt].problem
    if completion.finish is Finish.ERROR:
        if not draw.tolerant:
            raise UserError(f"rollout of {problem.id}: {completion.error}")
        verdict = Verdict(Status.ERROR, rule=completion.error)
    else:
        verdict = draw.judge.verify(problem, completion.text)
    judged = Judged(
        problem=problem,
        text=completion.text,
        n_tokens=len(completion.token_ids),
        max_tokens=draw.max_tokens,
        finish=completion.finish,
        verdict=verdict,
        seed=seed,
        logprobs=completion.logprobs,
    )
    return Rollout(
        problem=problem.id,
        gold=problem.gold,
        group=draw.first_group + prompt,
        response=response,
        sampler_logprobs=completion.logprobs,
        entropy_sum=float(completion.entropies.sum(dtype=np.float64)),
        truncated=completion.finish is Finish.LENGTH,
        text=completion.text,
        verdict=verdict,
        reward=nan if completion.finish is Finish.ERROR else draw.judge.reward(judged),
    )
