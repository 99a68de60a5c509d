"""Every kind of arm in one study, from the file to the report: the canary of the arms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlbhpc.cli.check import check
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import DONE
from rlbhpc.report.gather import gather
from rlbhpc.study.load import load_study
from tests.children import Child
from tests.report.scripts import script
from tests.store import reading

SCRIPT = script("best_prompt")


STUDY = Path(__file__).with_name("arms.yaml").read_text()
CHAT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    "{% if enable_thinking is false %}<think></think>{% endif %}"
)


@pytest.mark.engine
@pytest.mark.core
def test_every_arm_runs_from_its_file_to_the_report(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny", hidden_size=32)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": CHAT}))
    path = tmp_path / "arms.yaml"
    path.write_text(STUDY.replace("MODEL", str(model)))
    told = CliRunner().invoke(check, [str(path)])
    assert all(word in told.output for word in ("few-shot", "top k", "min p", "repetition penalty"))
    assert Child("sample", str(path)).ended() == DONE
    study = load_study(path)
    for arm in study.arms:
        rows = reading.rows(study.layout, arm, "countdown", ("n_tokens", "logprobs")).table
        assert rows.num_rows == 4 * study.arms[arm].n
        if arm == "long":
            assert set(rows["n_tokens"].to_pylist()) == {8}
    report = gather(study.layout.root)
    provenance = report.provenance["narrow/countdown"]
    assert provenance["sampling"]["top_k"] == 5
    assert "before top-p, every other cut and every penalty" in provenance["entropy"]
    assert "top_k" not in report.provenance["greedy/countdown"]["sampling"]
    (best,) = SCRIPT.best_prompts(report)
    assert best.prompts.spread.prompts == ("countdown", "direct", "few-shot")
    assert best.trained == "trained" and len(SCRIPT.best_prompt_frame([best]))
