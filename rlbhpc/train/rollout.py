"""What a training run is made of, and one step's rollout: prompts to judged responses."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rlbhpc.engines.completion import Completion, Finish, Request, finish_name
from rlbhpc.engines.driver import draw
from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.folder import steady_length
from rlbhpc.engines.hf_model import ImageProcessor
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.keys import SampleKey, Sampling, sample_seed
from rlbhpc.sweep.process import Drain, Interrupted
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Algorithm, Batch, Rounds, Scorer, Store
from rlbhpc.train.batch import PromptImages, Response, Rollout
from rlbhpc.train.dynamics import describe
from rlbhpc.train.learner import pad_rows
from rlbhpc.train.mixture import Mixture, draw_indices, keep_right, note_success, replay
from rlbhpc.train.rewards import Judged
from rlbhpc.train.settings import Settings
from rlbhpc.verify.tools import open_tools
from rlbhpc.verify.verdict import Status, Verdict

# How images are cut; transformers 5 writes the second where older versions wrote the first.
IMAGE_CONFIGS = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True)
class Prompt:
    """A problem with its prompt, tokenised once; an image is marked by one token.

    ``hint`` is the text of a response's beginning, if the ids end with that of a teacher's.
    """

    problem: Problem
    ids: tuple[int, ...]
    hint: str = ""


@dataclass(frozen=True)
class Judge:
    """What turns a completion into a reward: a verifier and a reward function.

    ``verify`` is given the problem, the text and the name of how it ended.
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
    ``base``. ``ask`` puts a problem that an algorithm makes itself into the recipe's prompt. Of
    several problem sets ``mixture`` says which prompts are whose. ``hinted`` has, by problem, its
    prompt with the beginning of a teacher's response.
    """

    name: str
    base: Path
    folder: Path
    exports: dict[int, Export]
    settings: Settings
    algorithm: Algorithm
    prompts: Sequence[Prompt]
    judge: Judge
    image_processor: ImageProcessor | None = None
    reference: Path | None = None
    ask: Callable[[Problem], Prompt] | None = None
    mixture: Mixture | None = None
    hinted: Mapping[str, Prompt] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Digest of what must stay the same for a run to go on.

        The settings' ``essence`` are those that change the result.
        """
        parts = [self.name, self.settings.essence, repr(self.algorithm)]
        prompts = [*self.prompts, *self.hinted.values()]
        parts += [f"{prompt.problem.content_hash} {prompt.ids}" for prompt in prompts]
        if self.mixture is not None:
            parts.append(repr(self.mixture))
        parts.append((self.base / "config.json").read_text())
        if any(prompt.problem.images for prompt in self.prompts):  # how many tokens an image is
            configs = [self.base / name for name in IMAGE_CONFIGS if (self.base / name).is_file()]
            parts.append(configs[0].read_text())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Collected:
    """The rollout of one step: all that was sampled, and what is learnt from.

    ``cursor`` counts the prompts that were drawn up to here in the whole run.
    """

    sampled: list[Rollout]
    lessons: list[Rollout]
    cursor: int
    metrics: dict[str, float]


def collect(
    run: Run, engine: Engine, scorer: Scorer, step: int, cursor: int, store: Store, drain: Drain
) -> Collected:
    """Sample one step's rollout; new prompts take the place of groups that teach nothing.

    ``cursor`` counts the prompts drawn before; ``store`` is what is remembered from step to step. A
    group is all responses to one prompt, replayed ones of earlier steps among them. The lessons are
    the responses that the algorithm selects to learn from. Every group of which something was
    selected is used: a refill asks only for as many prompts as are missing.
    """
    settings, algorithm = run.settings, run.algorithm
    sampler = StepSampler(run, engine, step, cursor, drain)
    own_tasks = algorithm.rounds(step, settings.seed, settings.prompts_per_step, store)
    sampled: list[Rollout] = []
    lessons: list[Rollout] = []
    rewards: list[Tensor] = []
    n_missing = settings.prompts_per_step
    n_refills = n_replayed = 0
    while True:
        if own_tasks is None:
            fresh = sampler.sample_next_prompts(n_missing, store)
        else:
            fresh = sampler.play_rounds(own_tasks)
        if settings.success_rate or run.hinted:
            note_success(fresh, store["draws"])
        replayed = replay(fresh, store["draws"]) if settings.replays else []
        n_replayed += len(replayed)
        candidates = fresh + replayed
        batch = make_batch(candidates, settings.max_tokens, scorer)
        batch_rewards = algorithm.reward(batch, store)
        lessons += _select_lessons(run, candidates, replace(batch, rewards=batch_rewards), store)
        sampled += fresh
        rewards.append(batch_rewards[: len(fresh)])
        n_missing = settings.prompts_per_step - _count_groups(lessons)
        if n_missing == 0 or n_refills == algorithm.refills:
            break
        n_refills += 1
    n_groups = _count_groups(sampled)
    if not lessons:
        raise UserError(
            f"training step {step}: {n_groups} prompts were sampled {settings.samples_per_prompt} "
            f"times and gave not once {algorithm.LEARNS_FROM}, so there is nothing to learn from; "
            "use problems nearer to the model's ability, or more samples_per_prompt"
        )
    if settings.replays:
        lessons.sort(key=lambda lesson: lesson.group)
        keep_right(sampled, store["draws"], settings)
    batch = make_batch(sampled, settings.max_tokens, scorer)
    # Of all that was sampled and of its plain rewards, so that algorithms compare.
    metrics = describe(sampled) | algorithm.measure(batch, torch.cat(rewards), store)
    lessons_differ = len(lessons) < len(sampled) or any(
        lesson is not rollout for lesson, rollout in zip(lessons, sampled, strict=True)
    )
    if lessons_differ:
        metrics |= {f"kept/{name}": value for name, value in describe(lessons).items()}
    if algorithm.refills:
        metrics |= {"rollout/refills": float(n_refills), "rollout/prompts": float(n_groups)}
    if settings.replays:
        metrics["replay/responses"] = float(n_replayed)
    if settings.success_rate:
        metrics["selection/left_out"] = float(len(store["draws"]["outside"]))
    return Collected(sampled, lessons, sampler.cursor, metrics)


def _count_groups(rollouts: Sequence[Rollout]) -> int:
    return len({rollout.group for rollout in rollouts})


def make_batch(rollouts: Sequence[Rollout], max_tokens: int, scorer: Scorer) -> Batch:
    """Collect what an algorithm may look at of some rollouts, as arrays with one entry for each.

    A rollout is one sampled and judged response.
    """
    return Batch(
        rewards=torch.tensor([r.reward for r in rollouts], dtype=torch.float64),
        correct=torch.tensor([r.correct for r in rollouts]),
        answers=[r.verdict.canonical for r in rollouts],
        groups=torch.tensor([r.group for r in rollouts]),
        lengths=torch.tensor([len(r.response.model_ids) for r in rollouts]),
        max_tokens=max_tokens,
        problems=[r.problem for r in rollouts],
        golds=[r.gold for r in rollouts],
        texts=[r.text for r in rollouts],
        greedy=torch.tensor([r.greedy_reward for r in rollouts], dtype=torch.float64),
        parts=torch.tensor([r.part for r in rollouts]),
        responses=[r.response for r in rollouts],
        sampler_logprobs=pad_rows([r.sampler_logprobs for r in rollouts]),
        scorer=scorer,
    )


def unanswered_batch(run: Run, scorer: Scorer) -> Batch:
    """All prompts of a run, each with an empty response that is neither right nor wrong."""
    rollouts = [
        Rollout(
            problem=prompt.problem.id,
            gold=prompt.problem.gold,
            group=number,
            response=empty_response(prompt, run.image_processor),
            sampler_logprobs=np.array([], np.float32),
            entropy_sum=0.0,
            truncated=False,
            text="",
            verdict=Verdict(Status.MISSING),
            reward=0.0,
        )
        for number, prompt in enumerate(run.prompts)
    ]
    return make_batch(rollouts, run.settings.max_tokens, scorer)


def _select_lessons(run: Run, rollouts: list[Rollout], batch: Batch, store: Store) -> list[Rollout]:
    """Responses with a reward that the algorithm selects, with the reward that it gives them.

    ``batch`` has the same responses as ``rollouts``, with the algorithm's rewards; NaN is no
    reward.
    """
    assert batch.greedy is not None
    has_reward = ~batch.rewards.isnan() & ~batch.greedy.isnan()
    is_selected = (run.algorithm.select(batch, store) & has_reward).tolist()
    lessons = []
    for rollout, reward, selected in zip(
        rollouts, batch.rewards.tolist(), is_selected, strict=True
    ):
        if not selected:
            continue
        if rollout.reward != reward:
            rollout = replace(rollout, reward=reward)
        lessons.append(rollout)
    return lessons


class StepSampler:
    """Samples the prompts of one training step, shared out over all ranks.

    ``cursor`` counts the prompts drawn so far in the whole run.
    """

    def __init__(self, run: Run, engine: Engine, step: int, cursor: int, drain: Drain) -> None:
        """Get ready to sample the prompts of training step ``step`` with ``engine``.

        ``cursor`` counts the prompts that the run has drawn before. ``drain`` tells whether the job
        was asked to stop.
        """
        self.cursor = cursor
        self._run = run
        self._engine = engine
        self._step = step
        self._drain = drain

    def sample_next_prompts(self, count: int, store: Store) -> list[Rollout]:
        """Draw the next prompts of the run and sample as many responses to each as it sets.

        ``store`` remembers what was drawn. A problem that nobody solved when it was drawn last
        comes with a hint if there is one. Where responses are replayed, as many fewer are sampled.
        """
        run, settings = self._run, self._run.settings
        mixture = run.mixture or Mixture((len(run.prompts),), ((1, (1.0,)),))
        n_sets = len(mixture.sizes)
        # A run of before sets were mixed has one, and is as far in it as it has drawn prompts.
        fresh_draws = {"positions": [self.cursor] * n_sets, "balances": [0.0] * n_sets, "rates": {}}
        draws = store.setdefault("draws", fresh_draws)
        problems = [prompt.problem.id for prompt in run.prompts]
        prompts = []
        for index in draw_indices(settings, mixture, problems, self._step, count, draws):
            prompt = run.prompts[index]
            if draws["rates"].get(prompt.problem.id) == 0:
                prompt = run.hinted.get(prompt.problem.id, prompt)
            prompts.append(prompt)
        return self._sample_on_all_ranks(prompts, settings.samples_per_prompt - settings.replays)

    def play_rounds(self, rounds: Rounds) -> list[Rollout]:
        """Sample the rounds of tasks that an algorithm makes itself, and return its lessons.

        ``rounds`` is a generator: it yields tasks, is sent the judged responses to them, and
        returns the lessons, the responses to learn from. A task that the model could not be asked
        comes back as an error without text.
        """
        ask = self._run.ask
        assert ask is not None
        tasks = next(rounds)
        while True:
            prompts = [ask(problem) for problem in tasks.problems]
            rollouts = self._sample_on_all_ranks(prompts, tasks.samples)
            unasked = [r for r in rollouts if r.verdict.status is Status.ERROR and not r.text]
            if rollouts and len(unasked) == len(rollouts):
                reason = unasked[0].verdict.rule
                raise UserError(f"training step {self._step}: no task could be asked: {reason}")
            try:
                tasks = rounds.send(rollouts)
            except StopIteration as end:
                lessons: list[Rollout] = end.value
                return lessons

    def _sample_on_all_ranks(self, prompts: Sequence[Prompt], samples: int) -> list[Rollout]:
        """Sample prompts on all ranks; every rank gets all rollouts, in the order of the prompts.

        Each rank samples its share of the prompts, and then all exchange what they have. Raises
        ``Interrupted`` on all ranks if any of them was asked to stop.
        """
        n_ranks = dist.get_world_size()
        # Ranks that share one copy of the sampler's model sample the same prompts, in step.
        ranks_per_copy = self._run.settings.rollout_tensor_parallel
        # The quotient rounded up.
        share = -(-len(prompts) * ranks_per_copy // n_ranks)
        first = dist.get_rank() // ranks_per_copy * share
        rank_rollouts: list[Rollout] | None = None
        with suppress(Interrupted), self._interruptible():
            rank_rollouts = self._sample_on_this_rank(
                prompts[first : first + share], samples, self.cursor + first
            )
        if ds.any_rank(rank_rollouts is None):
            raise Interrupted
        self.cursor += len(prompts)
        rollouts_of_ranks: list[list[Rollout]] = [[] for _ in range(n_ranks)]
        dist.all_gather_object(rollouts_of_ranks, rank_rollouts)
        one_rank_per_copy = rollouts_of_ranks[::ranks_per_copy]
        return [rollout for rollouts in one_rank_per_copy for rollout in rollouts]

    def _interruptible(self) -> AbstractContextManager[None]:
        """Context in which a warning ends the sampling at once, if this rank samples by itself.

        Ranks that share a model wait for each other at each token, so none may leave the others:
        they stop after the rollout.
        """
        if self._run.settings.rollout_tensor_parallel > 1:
            return nullcontext()
        return self._drain.interruptible()

    def _sample_on_this_rank(
        self, prompts: Sequence[Prompt], samples: int, first_group: int
    ) -> list[Rollout]:
        """Sample this rank's prompts, and their greedy responses where the algorithm needs them.

        ``first_group`` is the number of the first prompt among all that the run draws; the
        responses to one prompt share that number as their group.
        """
        run = self._run
        where = (run, self._engine, self._step, first_group, prompts)
        drain = self._drain if run.settings.rollout_tensor_parallel == 1 else None
        rollouts = roll_out(*where, samples, run.settings.temperature, drain)
        if not run.algorithm.NEEDS_GREEDY:
            return rollouts
        greedy_rollouts = roll_out(*where, 1, 0.0, drain)
        reward_of_group = {rollout.group: rollout.reward for rollout in greedy_rollouts}
        return [replace(r, greedy_reward=reward_of_group[r.group]) for r in rollouts]


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

    ``first_group`` is the number of the first prompt among all that the run draws. It enters a
    response's seed beside the problem: a prompt that is drawn twice in one step must not give the
    same responses twice. A request's ``tag`` numbers the requests and comes back with its
    completion. ``unanswered`` has each prompt as the policy reads it, its images expanded to their
    tokens. A sample key names one response, and its seed is derived from that.
    """
    unanswered = [empty_response(prompt, run.image_processor) for prompt in prompts]
    requests: list[Request] = []
    for number, prompt in enumerate(prompts):
        arm = f"train/{run.name}/{first_group + number}"
        images = unanswered[number].prompt[1]
        for sample in range(samples):
            key = SampleKey(arm, step, prompt.problem.id, sample)
            seed = sample_seed(run.settings.seed, key)
            requests.append(Request(len(requests), prompt.ids, seed, images))
    turns = run.settings.turns
    sampling = Sampling(temperature, 1.0, run.settings.max_tokens, turns=turns)
    rollouts: dict[int, Rollout] = {}
    with open_tools(sampling) as tools:
        for completion in draw(engine, requests, sampling, tools):
            # Tags count the samples of one prompt after the other.
            number = completion.tag // samples
            model_mask = completion.written_by_model if turns else None
            rollouts[completion.tag] = _judge_completion(
                run,
                prompts[number],
                first_group + number,
                replace(unanswered[number], token_ids=completion.token_ids, model_mask=model_mask),
                completion,
                requests[completion.tag].seed,
            )
            # A reward of one's own may catch what the warning raised in it, by a bare `except:`.
            if drain is not None and drain.requested:
                raise Interrupted
    return [rollouts[tag] for tag in sorted(rollouts)]


def empty_response(prompt: Prompt, processor: ImageProcessor | None) -> Response:
    """A response without a token yet, behind a prompt as the policy reads it.

    An image in ``prompt.ids`` is one token; here it becomes as many as the model sees of it.
    """
    no_tokens = np.array([], np.int32)
    images = prompt.problem.pictures
    if not images:
        return Response(prompt.ids, no_tokens)
    if processor is None:
        raise UserError(f"{prompt.problem.id} has images, which this model cannot be shown")
    try:
        ids = processor.expand_images(prompt.ids, images)
        token_indices = np.flatnonzero(np.array(ids) == processor.image_token)
        positions = processor.token_positions(ids, images)
    except UserError as error:
        raise UserError(f"rollout of {prompt.problem.id}: {error}") from None
    return Response(ids, no_tokens, PromptImages(images, token_indices, positions))


def _judge_completion(
    run: Run, prompt: Prompt, group: int, response: Response, completion: Completion, seed: int
) -> Rollout:
    """Verify a completion and give it its reward; NaN where the model could not be asked.

    ``group`` numbers the prompt within the run, and ``response`` has the tokens to train on. Of an
    episode the verifier reads the last turn; log-probs and lengths are of the model's tokens.
    ``finish`` says how the completion ended. Only an algorithm that makes its own tasks may go on
    after one that could not be asked. ``strict_verdict`` takes an answer that is not plainly stated
    for none.
    """
    problem = prompt.problem
    logprobs = completion.logprobs[completion.written_by_model]
    reward = nan
    if completion.finish is not Finish.ERROR:
        ending = finish_name(completion.finish)
        text = prompt.hint + completion.text
        verdict = strict_verdict(run.judge.verify(problem, text, ending))
        judged = Judged(
            problem=problem,
            text=completion.text,
            n_tokens=len(logprobs),
            max_tokens=run.settings.max_tokens,
            finish=completion.finish,
            verdict=verdict,
            seed=seed,
            logprobs=logprobs,
        )
        reward = run.judge.reward(judged)
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
        sampler_logprobs=logprobs,
        entropy_sum=float(completion.entropies.sum(dtype=np.float64)),
        truncated=completion.finish is Finish.LENGTH,
        text=completion.text,
        verdict=verdict,
        reward=reward,
        n_turns=json.loads(completion.trace)["n_turns"] if completion.trace else 0,
    )


def strict_verdict(verdict: Verdict) -> Verdict:
    """The verdict of the strict reading, for which an answer that is not stated is no answer.

    Training on the lenient reading would teach to leave numbers about instead of to answer.
    """
    if verdict.strict is verdict.status:
        return verdict
    return replace(verdict, status=verdict.strict, answer="", canonical="")


def rollout_engine(run: Run, rows: int) -> Engine:
    """Make the engine of this rank, which samples at most ``rows`` responses side by side.

    A rank never needs more rows than its share of a step's responses.
    """
    settings = run.settings
    n_copies = settings.sampler_copies(dist.get_world_size())
    rows = min(rows, settings.responses_per_rank(n_copies))
    if settings.rollouts == "vllm":
        return _vllm_engine(run, rows)
    if not torch.cuda.is_available():
        return make_engine("hf", run.base, rows=rows)
    # The learner has made its rank's GPU the current one.
    device = f"cuda:{torch.cuda.current_device()}"
    return make_engine("hf", run.base, rows=rows, device=device, dtype=settings.dtype)


def _vllm_engine(run: Run, rows: int) -> Engine:
    """Make vLLM for the run's longest prompt and response.

    ``rows`` responses run side by side. ``steady_length`` is the most tokens that training and this
    engine can both hold; less leaves memory for more rows. An algorithm that makes its own tasks
    (``MAKES_TASKS``) may ask prompts of any length.
    """
    settings = run.settings
    if run.image_processor is not None and importlib.util.find_spec("torchvision") is None:
        raise UserError(
            "rollouts: vllm shows no images without torchvision; install the build that belongs to "
            "torch, or leave `rollouts` at hf"
        )
    max_length = steady_length(run.base)
    # Prompts of such an algorithm and results of tools may have any length.
    if not run.algorithm.MAKES_TASKS and settings.turns is None:
        all_prompts = [*run.prompts, *run.hinted.values()]
        prompts = [empty_response(prompt, run.image_processor) for prompt in all_prompts]
        longest_prompt = max(len(prompt.prompt_ids) for prompt in prompts)
        max_length = min(max_length, longest_prompt + settings.max_tokens)
    # While the learner works, the engine sleeps and gives back its memory.
    options: dict[str, Any] = {"enable_sleep_mode": torch.cuda.is_available()}
    if dist.get_world_size() > 1:  # the engine joins the group that the ranks have made
        options["distributed_executor_backend"] = "external_launcher"
    try:
        return make_engine(
            "vllm",
            run.base,
            rows=rows,
            dtype=settings.dtype,
            tensor_parallel=settings.rollout_tensor_parallel,
            memory=settings.rollout_memory,
            max_length=max_length,
            options=options,
        )
    except ValueError as error:
        raise UserError(
            "vLLM does not start beside the learner with rollout_memory "
            f"{settings.rollout_memory}: {error}"
        ) from error
