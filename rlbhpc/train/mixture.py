"""Which prompts a training step draws, and which earlier responses it learns from again.

Problem sets are mixed by weights that a schedule may change, problems are selected by their success
rate, and right responses are replayed. What this remembers are JSON values in the store, under
``draws``: they are saved with the training state, so a run that was killed draws the same again.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlbhpc.train.batch import Rollout
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status, Verdict


@dataclass(frozen=True)
class Mixture:
    """Problem sets whose prompts lie one after the other, and how often each set is drawn.

    ``sizes`` counts the prompts of each set. A stage is the step that it begins at and the weights
    of the sets from there on; the first begins at step 1.
    """

    sizes: tuple[int, ...]
    stages: tuple[tuple[int, tuple[float, ...]], ...]

    def weights(self, step: int) -> tuple[float, ...]:
        """Weights of the sets in a step, 0 for a set that sits out."""
        begun = [weights for first_step, weights in self.stages if first_step <= step]
        return begun[-1]


def draw_indices(
    settings: Settings,
    mixture: Mixture,
    problems: Sequence[str],
    step: int,
    count: int,
    draws: dict[str, Any],
) -> list[int]:
    """Indices of a run's next ``count`` prompts: sets by weight, and each set in shuffled passes.

    ``problems`` are the ids of all prompts, set by set. ``draws`` remembers the position in the
    passes of each set, and by how much it fell behind its weight (``balances``). Every
    `select_every` steps the problems whose success rate lies outside the band are listed anew; a
    problem without a rate is inside.
    """
    if settings.success_rate and (step - 1) % settings.select_every == 0:
        low, high = settings.success_rate
        rates = draws["rates"].items()
        draws["outside"] = sorted(problem for problem, rate in rates if not low <= rate <= high)
    left_out = frozenset(draws.get("outside", ()))
    weights = mixture.weights(step)
    indices = []
    for _ in range(count):
        number = _next_set(weights, draws["balances"])
        first_index, size = sum(mixture.sizes[:number]), mixture.sizes[number]
        is_drawn = False
        while not is_drawn:
            pass_number, place = divmod(draws["positions"][number], size)
            draws["positions"][number] += 1
            order = shuffled_pass(settings.seed, size, pass_number)
            index = first_index + int(order[place])
            # In one of some passes even what is left out: its rate may have changed. So no
            # selection is empty.
            is_retried = (pass_number + index) % settings.retry_passes == 0
            is_drawn = is_retried or problems[index] not in left_out
        indices.append(index)
    return indices


def _next_set(weights: Sequence[float], balances: list[float]) -> int:
    """Choose the set of the next prompt, the one that is owed most; ties go to the first.

    Each set is owed its share of every prompt and pays 1 when it is chosen (smooth weighted
    round-robin), so that no set is ever more than one prompt ahead of its share.
    """
    for number, weight in enumerate(weights):
        balances[number] += weight / sum(weights)
    drawn_sets = [number for number, weight in enumerate(weights) if weight]
    chosen = max(drawn_sets, key=lambda number: balances[number])
    balances[chosen] -= 1
    return chosen


@lru_cache(maxsize=32)
def shuffled_pass(seed: int, size: int, number: int) -> NDArray[np.int64]:
    """The order of a pass over ``size`` things, the permutation of the generator (seed, number)."""
    return np.random.Generator(np.random.Philox(key=[seed, number])).permutation(size)


def draw_order(seed: int, size: int, start: int, count: int) -> list[int]:
    """Indices of the next ``count`` of ``size`` things in an endless sequence of shuffled passes.

    ``start`` were drawn before. A counter is all the state there is: whoever asks, and however
    often the run was interrupted, the passes are the same.
    """
    order = []
    for position in range(start, start + count):
        number, place = divmod(position, size)
        order.append(int(shuffled_pass(seed, size, number)[place]))
    return order


def note_success(rollouts: Sequence[Rollout], draws: dict[str, Any]) -> None:
    """Remember each problem's success rate, the share of right responses when it was drawn last."""
    verdicts: dict[str, list[bool]] = {}
    for rollout in rollouts:
        verdicts.setdefault(rollout.problem, []).append(rollout.correct)
    for problem, is_right in verdicts.items():
        draws["rates"][problem] = sum(is_right) / len(is_right)


# ---- replay --------------------------------------------------------------------------------------


def replay(rollouts: Sequence[Rollout], draws: dict[str, Any]) -> list[Rollout]:
    """Right responses of earlier steps to the prompts of ``rollouts``, as members of their groups.

    RePO (Li et al. 2025, arXiv 2506.09340) with its newest responses. They keep the log-probs of
    the policy that sampled them. The learner weighs each token by the ratio of its own probability
    to that one, as it corrects any sampler, up to `sampler_cap`; advantages are of the whole group.
    """
    earlier: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for entry in draws.get("replays", ()):
        earlier.setdefault((entry["problem"], entry["prompt_tokens"]), []).append(entry)
    sibling_of_group = {rollout.group: rollout for rollout in rollouts}
    replayed = []
    for sibling in sibling_of_group.values():
        for entry in earlier.get(_prompt_key(sibling), ()):
            token_ids = np.frombuffer(base64.b64decode(entry["token_ids"]), np.int32)
            logprobs = np.frombuffer(base64.b64decode(entry["logprobs"]), np.float32)
            rollout = replace(
                sibling,
                response=replace(sibling.response, token_ids=token_ids.copy()),
                sampler_logprobs=logprobs.copy(),
                entropy_sum=entry["entropy_sum"],
                truncated=False,
                text=entry["text"],
                verdict=Verdict(Status.RIGHT, canonical=entry["answer"]),
                reward=entry["reward"],
            )
            replayed.append(rollout)
    return replayed


def keep_right(rollouts: Sequence[Rollout], draws: dict[str, Any], settings: Settings) -> None:
    """Keep right responses for later steps: the newest `replays` to a prompt, and a buffer in all.

    The arrays are kept as base64, which is copied and written faster than lists of numbers.
    """
    entries = list(draws.get("replays", ()))
    for rollout in rollouts:
        if not rollout.correct or rollout.truncated:
            continue
        problem, prompt_tokens = _prompt_key(rollout)
        token_ids = rollout.response.token_ids.astype(np.int32)
        logprobs = rollout.sampler_logprobs.astype(np.float32)
        entry = {
            "problem": problem,
            "prompt_tokens": prompt_tokens,
            "token_ids": base64.b64encode(token_ids.tobytes()).decode(),
            "logprobs": base64.b64encode(logprobs.tobytes()).decode(),
            "entropy_sum": rollout.entropy_sum,
            "text": rollout.text,
            "answer": rollout.verdict.canonical,
            "reward": rollout.reward,
        }
        entries.append(entry)
    n_kept: Counter[tuple[str, int]] = Counter()
    newest = []
    for entry in reversed(entries):
        key = entry["problem"], entry["prompt_tokens"]
        n_kept[key] += 1
        if n_kept[key] <= settings.replays:
            newest.append(entry)
    draws["replays"] = newest[: settings.replay_buffer][::-1]


def _prompt_key(rollout: Rollout) -> tuple[str, int]:
    """What tells the prompts of a problem apart, of which one may end with a hint."""
    return rollout.problem, len(rollout.response.prompt_ids)
