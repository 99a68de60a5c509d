"""What one training run is made of: prompts, a judge of responses, and where its models go."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rlbhpc.engines.completion import Completion, Finish, Request, finish_name
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.folder import steady_length
from rlbhpc.engines.hf_model import Sight
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.keys import SampleKey, Sampling, sample_seed
from rlbhpc.sweep.process import Drain, Interrupted
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Algorithm, Batch, Rounds, Scorer, Store
from rlbhpc.train.batch import Response, Rollout, Shown
from rlbhpc.train.dynamics import describe
from rlbhpc.train.learner import pad_rows
from rlbhpc.train.rewards import Judged
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict

# How images are cut; transformers 5 writes the second where older versions wrote the first.
EYES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True)
class Prompt:
    """A problem with its prompt, tokenised once; an image is marked by one token."""

    problem: Problem
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Judge:
    """What turns a completion into a reward: a verifier and a reward function.

    ``verify`` is told the problem, the text and how it ended.
    """

    verify: Callable[[Problem, str, str], Verdict]
    reward: Callable[[Judged], float]


@dataclass(frozen=True)
class Export:
    """Where the model of one step goes, and what its record says of it: see ``study.origin``."""

    folder: Path
    made_by: str
    run: str


@dataclass(frozen=True)
class Run:
    """One training run.

    ``name`` is the model of the study that comes out of it, and enters the seeds of its rollouts.
    It starts from ``base``, keeps training state and dynamics in ``folder``, and puts the model at
    each step where ``exports`` says. A penalty is measured against ``reference``, None for
    ``base``. ``ask`` puts a problem that an algorithm makes itself into the recipe's prompt.
    """

    name: str
    base: Path
    folder: Path
    exports: dict[int, Export]
    settings: Settings
    algorithm: Algorithm
    prompts: Sequence[Prompt]
    judge: Judge
    sight: Sight | None = None
    reference: Path | None = None
    ask: Callable[[Problem], Prompt] | None = None

    @property
    def identity(self) -> str:
        """Digest of what must stay the same for a run to go on."""
        parts = [
            self.name,
            self.settings.essence,
            repr(self.algorithm),
            *(f"{p.problem.content_hash} {p.ids}" for p in self.prompts),
            (self.base / "config.json").read_text(),
        ]
        if any(p.problem.images for p in self.prompts):  # how many tokens an image is
            files = [self.base / name for name in EYES]
            parts.append(next(file for file in files if file.is_file()).read_text())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# ---- rollout -------------------------------------------------------------------------------------
# One step's rollout: prompts to judged responses on all ranks, and what of them is learnt from.


NOTHING = np.array([], np.int32)


@dataclass(frozen=True)
class Collected:
    """The rollout of one step: all that was sampled, and what is learnt from.

    ``cursor`` counts the prompts that were drawn up to here in the whole run.
    """

    sampled: list[Rollout]
    chosen: list[Rollout]
    cursor: int
    metrics: dict[str, float]


def collect(
    run: Run, engine: Engine, scorer: Scorer, step: int, cursor: int, store: Store, drain: Drain
) -> Collected:
    """Sample one step's rollout; what the algorithm leaves out may be refilled a few times.

    Every group of which something was selected is used: a refill asks only for as many prompts as
    are missing. What describes the step is of all that was sampled and of its plain rewards, so
    that algorithms compare; what was chosen of it is described beside it.
    """
    settings, algorithm = run.settings, run.algorithm
    sampled: list[Rollout] = []
    chosen: list[Rollout] = []
    rewards: list[Tensor] = []
    shortened = 0
    missing = settings.prompts_per_step
    own_rounds = algorithm.rounds(step, settings.seed, settings.prompts_per_step, store)
    refills = 0
    while True:
        if own_rounds is None:
            order = draw_order(settings.seed, len(run.prompts), cursor, missing)
            prompts = [run.prompts[i] for i in order]
            fresh = _sample_on_all_ranks(
                run, engine, step, cursor, prompts, settings.samples_per_prompt, drain
            )
            cursor += missing
        else:
            fresh, cursor, shortened = _play_rounds(run, engine, step, cursor, own_rounds, drain)
        batch = batch_of(fresh, settings.max_tokens, scorer)
        rewards.append(algorithm.reward(batch, store))
        chosen += _select_lessons(run, fresh, replace(batch, rewards=rewards[-1]), store)
        sampled += fresh
        missing = settings.prompts_per_step - len({r.group for r in chosen})
        if missing == 0 or refills == algorithm.refills:
            break
        refills += 1
    groups = len({r.group for r in sampled})
    if not chosen:
        raise UserError(
            f"training step {step}: {groups} prompts were sampled {settings.samples_per_prompt} "
            f"times and gave not once {algorithm.LEARNS_FROM}, so there is nothing to learn from; "
            "use problems nearer to the model's ability, or more samples_per_prompt"
        )
    whole_batch = batch_of(sampled, settings.max_tokens, scorer)
    metrics = describe(sampled) | algorithm.measure(whole_batch, torch.cat(rewards), store)
    if not _are_same(chosen, sampled):
        metrics |= {f"kept/{name}": value for name, value in describe(chosen).items()}
    if algorithm.refills:
        metrics |= {"rollout/refills": float(refills), "rollout/prompts": float(groups)}
    if shortened:
        metrics["rollout/shortened"] = float(shortened)
    return Collected(sampled, chosen, cursor, metrics)


def _are_same(chosen: Sequence[Rollout], sampled: Sequence[Rollout]) -> bool:
    """Whether all that was sampled was chosen, with the rewards that it had."""
    if len(chosen) < len(sampled):
        return False
    return all(a is b for a, b in zip(chosen, sampled, strict=True))


def batch_of(rollouts: Sequence[Rollout], max_tokens: int, scorer: Scorer) -> Batch:
    """What an algorithm is shown of a rollout."""
    return Batch(
        rewards=torch.tensor([r.reward for r in rollouts], dtype=torch.float64),
        correct=torch.tensor([r.correct for r in rollouts]),
        answers=[r.verdict.canonical for r in rollouts],
        groups=torch.tensor([r.group for r in rollouts]),
        lengths=torch.tensor([len(r.response.token_ids) for r in rollouts]),
        max_tokens=max_tokens,
        problems=[r.problem for r in rollouts],
        golds=[r.gold for r in rollouts],
        texts=[r.text for r in rollouts],
        greedy=torch.tensor([r.greedy_reward for r in rollouts], dtype=torch.float64),
        parts=torch.tensor([r.part for r in rollouts]),
        responses=[r.response for r in rollouts],
        sampler=pad_rows([r.sampler_logprobs for r in rollouts]),
        scorer=scorer,
    )


def blank_of(run: Run, scorer: Scorer) -> Batch:
    """All prompts of a run, with nothing answered yet."""
    rollouts = [
        Rollout(
            prompt.problem.id, prompt.problem.gold, i, read_prompt(prompt, run.sight),
            np.array([], np.float32), 0.0, False, "", Verdict(Status.MISSING), 0.0,
        )
        for i, prompt in enumerate(run.prompts)
    ]  # fmt: skip
    return batch_of(rollouts, run.settings.max_tokens, scorer)


def _select_lessons(run: Run, rollouts: list[Rollout], batch: Batch, store: Store) -> list[Rollout]:
    """Responses to learn from, with the algorithm's rewards; what has no reward is left out."""
    assert batch.greedy is not None
    selected = run.algorithm.select(batch, store) & ~batch.rewards.isnan() & ~batch.greedy.isnan()
    chosen = []
    for rollout, reward, keep in zip(
        rollouts, batch.rewards.tolist(), selected.tolist(), strict=True
    ):
        if keep:
            chosen.append(rollout if rollout.reward == reward else replace(rollout, reward=reward))
    return chosen


def _play_rounds(
    run: Run, engine: Engine, step: int, cursor: int, rounds: Rounds, drain: Drain
) -> tuple[list[Rollout], int, int]:
    """Sample the rounds that an algorithm makes itself.

    Gives its lessons, the cursor after them, and how many prompts were shortened to fit the model.
    """
    round_ = next(rounds)
    shortened = 0
    while True:
        prompts = []
        for number, problem in enumerate(round_.problems):
            wordings = (problem, *(round_.shorter[number] if round_.shorter else ()))
            prompts.append(_prompt_that_fits(run, engine, wordings))
            shortened += prompts[-1].problem is not problem
        rollouts = _sample_on_all_ranks(run, engine, step, cursor, prompts, round_.samples, drain)
        cursor += len(prompts)
        unfit = [r for r in rollouts if r.verdict.status is Status.ERROR and not r.text]
        if rollouts and len(unfit) == len(rollouts):
            why = unfit[0].verdict.rule
            raise UserError(f"training step {step}: no task could be asked: {why}")
        try:
            round_ = rounds.send(rollouts)
        except StopIteration as ended:
            return ended.value, cursor, shortened


def _prompt_that_fits(run: Run, engine: Engine, wordings: Sequence[Problem]) -> Prompt:
    """The first wording of a task that the model can hold beside its response, or the last one."""
    assert run.ask is not None
    for problem in wordings:
        prompt = run.ask(problem)
        if len(prompt.ids) + run.settings.max_tokens <= engine.max_length:
            break
    return prompt


def _sample_on_all_ranks(
    run: Run,
    engine: Engine,
    step: int,
    cursor: int,
    prompts: Sequence[Prompt],
    samples: int,
    drain: Drain,
) -> list[Rollout]:
    """Sample prompts number ``cursor`` … on all ranks; every rank gets all rollouts, in order.

    A warning to any rank interrupts all of them.
    """
    ranks = dist.get_world_size()
    share = -(-len(prompts) // ranks)
    first = dist.get_rank() * share
    place = (run, engine, step, cursor + first, prompts[first : first + share])
    own: list[Rollout] | None = None
    with suppress(Interrupted), drain.interruptible():
        sampled = roll_out(*place, samples, run.settings.temperature, drain)
        if run.algorithm.NEEDS_GREEDY:
            greedy = {r.group: r.reward for r in roll_out(*place, 1, 0.0, drain)}
            sampled = [replace(r, greedy_reward=greedy[r.group]) for r in sampled]
        own = sampled
    if ds.any_rank(own is None):
        raise Interrupted
    everyone: list[list[Rollout]] = [[] for _ in range(ranks)]
    dist.all_gather_object(everyone, own)
    return [r for part in everyone for r in part]


def roll_out(
    run: Run,
    engine: Engine,
    step: int,
    first_group: int,
    prompts: Sequence[Prompt],
    samples: int,
    temperature: float,
    drain: Drain | None = None,
) -> list[Rollout]:
    """Sample and judge ``samples`` responses to each prompt, ordered by prompt and sample.

    ``first_group`` is the draw number of the first prompt in the whole run. It enters a response's
    seed beside the problem: a prompt that is drawn twice in one step must not give the same
    responses twice.
    """
    read = [read_prompt(prompt, run.sight) for prompt in prompts]
    requests: list[Request] = []
    for p, prompt in enumerate(prompts):
        arm = f"train/{run.name}/{first_group + p}"
        for sample in range(samples):
            key = SampleKey(arm, step, prompt.problem.id, sample)
            seed = sample_seed(run.settings.seed, key)
            requests.append(Request(len(requests), prompt.ids, seed, read[p].prompt[1]))
    sampling = Sampling(temperature, 1.0, run.settings.max_tokens)
    done: dict[int, Rollout] = {}
    for completion in engine.generate(requests, sampling):
        p = completion.tag // samples
        response = replace(read[p], token_ids=completion.token_ids)
        seed = requests[completion.tag].seed
        done[completion.tag] = _judge_completion(
            run, prompts[p].problem, first_group + p, response, completion, seed
        )
        # A reward of one's own may catch what the warning raised in it, by a bare `except:`.
        if drain is not None and drain.requested:
            raise Interrupted
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


def _judge_completion(
    run: Run, problem: Problem, group: int, response: Response, completion: Completion, seed: int
) -> Rollout:
    """Verify a completion and give it its reward; NaN where the model could not be asked."""
    reward = nan
    if completion.finish is not Finish.ERROR:
        finish = finish_name(completion.finish)
        verdict = strict_verdict(run.judge.verify(problem, completion.text, finish))
        reward = run.judge.reward(
            Judged(
                problem, completion.text, len(completion.token_ids), run.settings.max_tokens,
                completion.finish, verdict, seed, completion.logprobs,
            )
        )  # fmt: skip
    elif run.algorithm.MAKES_TASKS:
        # Not the user's mistake: the model cannot hold a task that it made itself.
        verdict = Verdict(Status.ERROR, rule=completion.error)
    else:
        raise UserError(f"rollout of {problem.id}: {completion.error}")
    return Rollout(
        problem=problem.id,
        gold=problem.gold,
        group=group,
        response=response,
        sampler_logprobs=completion.logprobs,
        entropy_sum=float(completion.entropies.sum(dtype=np.float64)),
        truncated=completion.finish is Finish.LENGTH,
        text=completion.text,
        verdict=verdict,
        reward=reward,
    )


def strict_verdict(verdict: Verdict) -> Verdict:
    """A verdict by the strict reading: what is not stated is no answer.

    Training on the lenient one would teach to leave numbers about instead of to answer.
    """
    if verdict.strict is verdict.status:
        return verdict
    return replace(verdict, status=verdict.strict, answer="", canonical="")


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


def rollout_engine(run: Run, rows: int) -> Engine:
    """The engine of this rank, in the learner's own process, with at most ``rows`` rows."""
    settings = run.settings
    rows = min(rows, settings.responses_per_rank(dist.get_world_size()))
    if settings.rollouts == "vllm":
        return _vllm_engine(run, rows)
    if not torch.cuda.is_available():
        return make_engine("hf", run.base, rows=rows)
    # The learner has made its rank's GPU the current one.
    device = f"cuda:{torch.cuda.current_device()}"
    return make_engine("hf", run.base, rows=rows, device=device, dtype=settings.dtype)


def _vllm_engine(run: Run, rows: int) -> Engine:
    """Make vLLM, for the run's longest prompt and response."""
    settings = run.settings
    if run.sight is not None and importlib.util.find_spec("torchvision") is None:
        raise UserError(
            "rollouts: vllm shows no images without torchvision; install the build that belongs to "
            "torch, or leave `rollouts` at hf"
        )
    prompts = [read_prompt(prompt, run.sight).prompt_ids for prompt in run.prompts]
    longest = max(map(len, prompts)) + settings.max_tokens
    if run.algorithm.MAKES_TASKS:  # of any length
        longest = steady_length(run.base)
    # While the learner works, the engine rests and gives back its memory.
    options: dict[str, Any] = {"enable_sleep_mode": torch.cuda.is_available()}
    if dist.get_world_size() > 1:  # the engine joins the world that the ranks have made
        options["distributed_executor_backend"] = "external_launcher"
    try:
        return make_engine(
            "vllm", run.base, rows=rows, dtype=settings.dtype, memory=settings.rollout_memory,
            max_length=min(longest, steady_length(run.base)),
            options=options,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(
            "vLLM does not start beside the learner with rollout_memory "
            f"{settings.rollout_memory}: {error}"
        ) from error
