"""The numbers of a report as tidy tables: one row per observation, one column per variable."""

from __future__ import annotations

import json
from dataclasses import asdict

import pandas as pd

from rlbhpc.report.beyond import compared
from rlbhpc.report.compare import Comparison
from rlbhpc.report.details import Details
from rlbhpc.report.figures.beyond import extrapolation_frame
from rlbhpc.report.figures.budget import budget_frame
from rlbhpc.report.figures.coverage import coverage_frame
from rlbhpc.report.figures.curves import curves_frame
from rlbhpc.report.figures.difference import difference_frame
from rlbhpc.report.figures.efficiency import delta_se_frame
from rlbhpc.report.figures.entropy import responses_frame
from rlbhpc.report.figures.histogram import histogram_frame
from rlbhpc.report.figures.majority import majority_frame
from rlbhpc.report.figures.perplexity import perplexity_frame, perplexity_steps_frame
from rlbhpc.report.figures.positions import positions_frame
from rlbhpc.report.figures.prompts import prompts_frame
from rlbhpc.report.figures.regraded import regraded_frame
from rlbhpc.report.figures.solvable import solvable_frame
from rlbhpc.report.figures.steps import steps_frame
from rlbhpc.report.figures.temperature import temperature_frame
from rlbhpc.report.figures.training import training_frame
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured


def tables(report: Report, details: Details) -> dict[str, pd.DataFrame]:
    """Every table of a report by name, also those of steps before the last; none is empty."""
    every = [one for line_up in report.line_ups for one in line_up]
    found = {
        "samples": samples_frame(report.measured),
        "pass_at_k": curves_frame(report.measured),
    }
    if every:
        found |= {
            "conclusions": conclusions_frame(every),
            "difference": difference_frame(every),
            "coverage": coverage_frame(every),
            "accuracy_histogram": pd.concat([histogram_frame(one) for one in report.final]),
            "delta_se": delta_se_frame(every),
            "steps": pd.concat([steps_frame(line_up) for line_up in report.line_ups]),
        }
    found |= _of_details(details)
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        arms = [one for one in compared(report) if one.problem_set == set_name]
        if len(arms) > 1:
            name = "solvable"
            parts = [found[name]] if name in found else []
            found[name] = pd.concat([*parts, solvable_frame(arms)], ignore_index=True)
    return {name: frame for name, frame in found.items() if len(frame)}


def _of_details(details: Details) -> dict[str, pd.DataFrame]:
    found = {
        "responses": responses_frame(details.responses),
        "training": training_frame(details.training),
        "perplexity": perplexity_frame(details.scored),
        "perplexity_steps": perplexity_steps_frame(details.evolutions),
        "forecasts": forecasts_frame(details),
        "reliability": reliability_frame(details),
        "reviewed_chains": reviewed_frame(details),
        "cot_pass_at_k": cot_frame(details),
        "prompts": prompts_frame(details.prompts),
        "perplexity_positions": positions_frame(details.positions),
        "chosen_checkpoints": chosen_frame(details),
        "equal_entropy": matched_frame(details),
        "repeats": repeats_frame(details),
        "regraded": regraded_frame(details.verdicts.arms if details.verdicts else ()),
    }
    if details.budgets:
        found["budget"] = budget_frame(details.budgets)
    if details.votes:
        found["majority"] = majority_frame(details.votes)
    if details.beyond:
        found["extrapolation"] = extrapolation_frame(details.beyond)
    if details.temperatures:
        frames = [temperature_frame(one) for one in details.temperatures]
        found["temperature"] = pd.concat(frames, ignore_index=True)
    if details.unguessed:
        frames = [curves_frame(one.kept) for one in details.unguessed]
        found["without_guessable"] = pd.concat(frames, ignore_index=True)
    return found


def reliability_frame(details: Details) -> pd.DataFrame:
    """Reliability metrics with intervals, one row per arm, step, set and metric."""
    return pd.DataFrame(
        {
            "problem_set": one.of.problem_set,
            "arm": one.of.arm,
            "step": one.of.step,
            "metric": name,
            "value": float(value.estimate),
            "lower": float(value.lower),
            "upper": float(value.upper),
            "sound": bool(value.sound),
        }
        for one in details.reliability
        for name, value in one.values.items()
    )


def reviewed_frame(details: Details) -> pd.DataFrame:
    """What readers of chains found, one row per sheet."""
    names = ("of", "readers", "problems", "valid", "unknown")
    return pd.DataFrame({name: getattr(one, name) for name in names} for one in details.reviewed)


def cot_frame(details: Details) -> pd.DataFrame:
    """CoT-pass@k beside pass@k on hard problems whose chains were read, one row per sheet and k."""
    parts = [
        pd.DataFrame(
            {
                "of": one.of,
                "problems": one.chains.problems,
                "k": one.chains.k,
                "cot_pass_at_k": one.chains.valid.estimate,
                "lower": one.chains.valid.lower,
                "upper": one.chains.valid.upper,
                "pass_at_k": one.chains.any_right.estimate,
            }
        )
        for one in details.reviewed
        if one.chains
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def matched_frame(details: Details) -> pd.DataFrame:
    """Differences at equal entropy, one row per base arm, trained model and k."""
    parts = [
        pd.DataFrame(
            {
                "problem_set": one.base.problem_set,
                "base": one.base.arm,
                "trained": one.trained,
                "entropy": one.entropy,
                "temperature": one.temperature,
                "k": one.k,
                "difference": one.difference.estimate,
                "lower": one.difference.lower,
                "upper": one.difference.upper,
            }
        )
        for one in details.matched
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def chosen_frame(details: Details) -> pd.DataFrame:
    """Checkpoints that even samples chose, one row per line of checkpoints and k."""
    return pd.DataFrame(
        {
            "problem_set": one.base.problem_set,
            "base": one.base.arm,
            "trained": one.chosen.arm,
            "step": one.chosen.step,
            "checkpoints": one.checkpoints,
            "k": one.k,
            "problems": one.problems,
            "difference_even": one.on_even,
            "difference_odd": float(one.on_odd.estimate),
            "lower": float(one.on_odd.lower),
            "upper": float(one.on_odd.upper),
            "sound": bool(one.on_odd.sound),
        }
        for one in details.chosen
    )


def repeats_frame(details: Details) -> pd.DataFrame:
    """Repeated responses, one row per arm."""
    return pd.DataFrame(
        {
            "problem_set": one.of.problem_set,
            "arm": one.of.arm,
            "step": one.of.step,
            "problems": one.problems,
            "responses": one.responses,
            "longest_repeated": one.longest,
        }
        | {
            f"{name}{end}": float(getattr(value, field))
            for name, value in (("distinct", one.distinct), ("effective", one.effective))
            for end, field in (("", "estimate"), ("_lower", "lower"), ("_upper", "upper"))
        }
        for one in details.repeats
    )


def forecasts_frame(details: Details) -> pd.DataFrame:
    """Chance of a decision by samples per problem, one row per undecided comparison and size."""
    rows = [
        {
            "problem_set": one.of.base.problem_set,
            "base": one.of.base.arm,
            "trained": one.of.trained.arm,
            "step": one.of.trained.step,
            "n": size.n,
            "decided": size.decided,
            "simulations": one.studies,
            **{f"says_{headline}": share for headline, share in size.headlines.items()},
        }
        for one in details.more
        for size in one.forecasts
    ]
    return pd.DataFrame(rows)


def as_records(report: Report) -> str:
    """Conclusions, samples and notes as JSON, missing numbers as null."""
    every = [one for line_up in report.line_ups for one in line_up]
    frames = {
        "conclusions": conclusions_frame(every),
        "samples": samples_frame(report.measured),
    }
    records = {
        name: json.loads(frame.to_json(orient="records", double_precision=15))
        for name, frame in frames.items()
    }
    return json.dumps({"name": report.name, **records, "notes": report.notes}, indent=2)


def samples_frame(found: tuple[Measured, ...]) -> pd.DataFrame:
    """What became of the samples, one row per arm, step and set; empty where it is not known."""
    rows = [
        {
            "problem_set": one.problem_set,
            "arm": one.arm,
            "step": one.step,
            "problems": len(one.problems),
            "problems_without_samples": int((~one.sampled).sum()),
            "samples_per_problem": one.depth,
            "topped_up": one.topped_up,
            **asdict(one.tally),
        }
        for one in found
    ]
    return pd.DataFrame(rows).convert_dtypes()


def conclusions_frame(compared: list[Comparison]) -> pd.DataFrame:
    """The answer with the numbers that it stands on, one row per comparison."""
    return pd.DataFrame([_conclusion(one) for one in compared])


def _conclusion(one: Comparison) -> dict[str, object]:
    said, found = one.conclusion, one.conclusion.crossing
    support = {
        f"{name}{end}": float(getattr(value, field))
        for name, value in (one.support or {}).items()
        for end, field in (("", "estimate"), ("_lower", "lower"), ("_upper", "upper"))
    }
    cells = one.solved.counts if one.solved else {}
    return {
        "problem_set": one.base.problem_set,
        "base": one.base.arm,
        "base_step": one.base.step,
        "trained": one.trained.arm,
        "step": one.trained.step,
        "answer": str(said.headline),
        "boundary": str(said.boundary),
        "problems": len(one.problems),
        "problems_left_out": len(one.left_out),
        "k": said.reach,
        "difference": float(said.at_reach.estimate),
        "lower": float(said.at_reach.lower),
        "upper": float(said.at_reach.upper),
        "crossings": ", ".join(str(k) for k in found.first_k.tolist()),
        "crossing_sets": " ".join(str(part) for part in found.sets),
        "p_crossing": found.probability,
        "p_moved": one.curve.p_moved,
        "p_moved_holm": one.p_moved_holm,
        **cells,
        "p_mcnemar": one.solved.p_value if one.solved else float("nan"),
        "p_mcnemar_holm": one.p_solved_holm,
        **support,
        "words": " ".join(one.words),
    }
