"""Each script of ``analysis/`` draws from a run and writes the figure with its numbers."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlbhpc.report.gather import gather
from rlbhpc.stats.coverage_table import BINS
from rlbhpc.store import tables
from rlbhpc.study.layout import Layout
from tests.report.made import SET, make_study, put_counts
from tests.report.rich import PROBLEMS, STEPS
from tests.sweep.replay import Replay, full_samples, swept
from tests.sweep.replay import make_study as make_stopped

FOLDER = Path(__file__).parents[2] / "analysis"
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
# The others need a file of judgements or stored tokens, or draw published numbers.
APART = {"cot_pass_at_k", "problems_over_training", "search_tree"}
ANY_RUN = {
    name
    for name, path in SCRIPTS.items()
    if name not in APART and "published" not in name and "__main__" in path.read_text()
}
Run = Callable[..., dict[str, pd.DataFrame]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a script; the numbers of its figures by name."""

    def started(name: str, *arguments: str | Path) -> dict[str, pd.DataFrame]:
        out = tmp_path / "out"
        words = [str(word) for word in arguments]
        monkeypatch.setattr(sys, "argv", [name, *words, "-o", str(out)])
        runpy.run_path(str(SCRIPTS[name]), run_name="__main__")
        names = {path.stem for path in out.iterdir()}
        assert names and all(stem.startswith(name) for stem in names)
        for stem in names:
            endings = {path.suffix for path in out.glob(f"{stem}.*")}
            assert endings == {".pdf", ".pgf", ".png", ".csv", ".json"}
        frames = {stem: pd.read_csv(out / f"{stem}.csv") for stem in names}
        for stem, frame in frames.items():
            record = json.loads((out / f"{stem}.json").read_text())
            assert record["rows"] == len(frame) > 0
        return frames

    return started


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ANY_RUN))
def test_every_script_draws_a_run(name: str, rich_run: Path, start: Run) -> None:
    start(name, rich_run)


def test_the_sidecar_says_what_the_numbers_stand_on(run: Path, start: Run, tmp_path: Path) -> None:
    start("pass_at_k", run)
    record = json.loads(next((tmp_path / "out").glob("*.json")).read_text())
    assert record["seed"] == 5 and "missing" in " ".join(record["notes"])
    about = record["run"], record["interval"], record["bootstrap_replicates"], record["figure"]
    assert about == ("run", 0.95, 1000, f"pass_at_k-{SET}")


def test_checkpoints_hold_base_and_every_step(rich_run: Path, start: Run) -> None:
    (frame,) = start("checkpoints", rich_run).values()
    assert sorted(set(frame["step"])) == [0, *STEPS]


def test_ablations_compare_with_the_arm_that_was_named(rich_run: Path, start: Run) -> None:
    (frame,) = start("ablations", rich_run, "--compare", "grpo:ppo").values()
    assert set(frame["base"]) == {"grpo"} and set(frame["trained"]) == {"ppo"}


def test_entropy_falls_over_the_steps_as_it_was_made_to(rich_run: Path, start: Run) -> None:
    (frame,) = start("entropy", rich_run).values()
    line = frame[frame["arm"] == "grpo"].sort_values("step")
    assert (np.diff(line["entropy"]) < 0).all()
    assert ((line["entropy_lower"] < line["entropy"]) & (line["entropy"] > 0)).all()


def test_guessed_problems_are_left_out(rich_run: Path, start: Run) -> None:
    (frame,) = start("guess_filtered", rich_run).values()
    assert 0 < frame["problems"].max() < PROBLEMS
    assert "no-think" not in set(frame["arm"])


def test_perplexity_of_all_texts_under_all_models(rich_run: Path, start: Run) -> None:
    (frame,) = start("perplexity", rich_run).values()
    reference = frame[frame["source"] == "reference"].iloc[0]
    own = frame[(frame["source"] == "grpo") & (frame["scorer"] == "start")]
    assert reference["median"] == frame["median"].max()
    assert (own["median"] < reference["lower_quartile"]).all()


def test_chains_that_were_judged(tmp_path: Path, start: Run) -> None:
    study = make_study(tmp_path / "run", 4, 8)
    put_counts(study, "base", [8, 4, 0, 2], 8)
    put_counts(study, "rl", [8, 8, 0, 0], 8, 100)
    judged = pd.DataFrame(
        {"arm": "base", "step": 0, "problem": ["math/0", "math/1", "math/3"], "valid": [4, 4, 0]}
    )
    judged.to_csv(tmp_path / "chains.csv")
    (frame,) = start(
        "cot_pass_at_k", tmp_path / "run", "--judged", tmp_path / "chains.csv"
    ).values()
    assert set(frame["arm"]) == {"base"}, "nobody judged the chains of the other arm"
    first = frame[frame["k"] == 1].iloc[0]
    assert first["pass_at_k"] == pytest.approx((4 + 4 + 0 + 0) / 32)
    assert first["problems"] == 4


def test_chains_of_problems_that_stop_are_refused(
    tmp_path: Path, start: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_stopped(tmp_path, 4, 8, stop_after=2)
    swept(study, Replay(full_samples(study, 8)[1]))
    rows = {"arm": "base", "step": 0, "problem": study.problem_ids("math500"), "valid": 0}
    pd.DataFrame(rows).to_csv(tmp_path / "chains.csv")
    with pytest.raises(SystemExit) as caught:
        start("cot_pass_at_k", study.layout.root, "--judged", tmp_path / "chains.csv")
    assert caught.value.code == 64
    assert "CoT-Pass@k needs a fixed number of samples" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["difference", "published_delta_se"])
def test_figures_need_a_folder(script: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [script] if script.startswith("published") else [script, str(run)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SCRIPTS[script]), run_name="__main__")
    assert caught.value.code == 2


def test_published_gaps_are_worked_out_anew(start: Run) -> None:
    (gaps,) = start("published_delta_se").values()
    # From the tables, not copied: the study's text has 43.9 for what gives 44.0.
    best = gaps[(gaps["arm"] == "GRPO") & (gaps["step"] == 150)]["delta_se"].tolist()
    assert best == [41.1, 44.0, 21.8]


def test_published_histograms_are_whole(start: Run) -> None:
    (table,) = start("accuracy_histogram").values()
    sizes = table.groupby(["benchmark", "side"])["problems"].sum()
    assert sizes.unstack().to_numpy().tolist() == [[30, 30], [500, 500], [272, 272]]
    assert len(table) == 3 * 2 * len(BINS) and set(table["bin"]) == set(BINS)


def test_published_curves_are_whole(start: Run) -> None:
    curve = start("published_pass_at_k")["published_pass_at_k-math"]
    assert not curve.duplicated(["benchmark", "model", "side", "arm", "k"]).any()
    base = curve.query("benchmark == 'AIME24' and model == 'Qwen2.5-7B' and side == 'base'")
    assert base["k"].tolist() == [2**i for i in range(11)]
    assert base["percent"].tolist()[-1] == 76.6
    rising = curve.groupby(["benchmark", "model", "side", "arm"])["percent"]
    assert rising.apply(lambda line: line.is_monotonic_increasing).all()
    assert (curve["source"].str.len() > 10).all()


def test_published_dynamics_are_whole(start: Run) -> None:
    (dynamics,) = start("published_training_dynamics").values()
    assert set(dynamics["metric"]) == {"reward", "entropy"}
    assert not dynamics.duplicated(["run", "metric", "step"]).any()


def test_a_run_is_laid_over_the_benchmark_of_its_name(tmp_path: Path, start: Run) -> None:
    for arm, right in (("base", 2), ("rl", 5)):
        cells = {(0, f"aime24/{i}"): (8, right) for i in range(30)}
        tables.put_counts(Layout(tmp_path / "run"), arm, "aime24", arm, cells)
    published = runpy.run_path(str(SCRIPTS["published_pass_at_k"]))
    report = gather(tmp_path / "run", [("base", "rl")])
    found = dict(published["draw"]([report]))["published_pass_at_k-math"].frame
    mine = found[found["source"] == "run"]
    assert set(mine["side"]) == {"base", "trained"}
    assert mine[mine["k"] == 1]["percent"].tolist() == pytest.approx([62.5, 25.0], abs=1e-9)


@pytest.mark.parametrize(
    ("script", "holds_samples", "code", "message"),
    [
        ("difference", False, 64, "holds no samples"),
        ("published_pass_at_k", False, 64, "holds no samples"),
        ("training_dynamics", True, 4, "nothing for this figure"),
    ],
)
def test_a_folder_without_what_a_figure_shows_is_told(
    run: Path,
    tmp_path: Path,
    start: Run,
    capsys: pytest.CaptureFixture[str],
    script: str,
    holds_samples: bool,
    code: int,
    message: str,
) -> None:
    with pytest.raises(SystemExit) as caught:
        start(script, run if holds_samples else tmp_path)
    assert caught.value.code == code
    assert message in capsys.readouterr().err
