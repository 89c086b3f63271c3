"""The page as a document: whole, self-contained, safe, and honest about what is missing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import made_up_run as made_up
import numpy as np
import pytest
from scipy.stats import spearmanr

from pspo.algorithms.pspo.algorithm import Config
from pspo.algorithms.registry import preset
from pspo.cli.main import _parser
from pspo.core.config import build, flatten, keys, parse_settings
from pspo.core.errors import UserError
from pspo.report.run.page import write_report
from tests.report.reading import Page

HOSTILE = '<script>alert("$1$^")</script>'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "run"
    changed = made_up.config({"beta": 2.5, "reference_term": False}, episodes=500)
    return made_up.write_run(path, config=changed | {"episodes": 500})


@pytest.fixture(scope="module")
def page(run: Path) -> Page:
    return Page(write_report(run).read_text())


def check_self_contained(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids)), "an id occurs twice"
    for name, value in page.attributes:
        if name in ("href", "xlink:href", "src"):
            assert value.startswith(("#", "data:")), value
        for target in re.findall(r"url\(#([^)]+)\)", value) + (
            [value[1:]] if name == "href" and value[0] == "#" else []
        ):
            assert target in page.ids
    assert not re.search(r"https?://", page.source)
    assert "@import" not in page.source
    assert "script" not in page.tags


def test_page_is_whole_self_contained_and_small(run: Path, page: Page):
    check_self_contained(page)
    assert page.tags.count("svg") >= 15
    assert len(page.source.encode()) < 1_500_000
    assert sorted(p.name for p in run.iterdir() if p.name.startswith(".")) == []  # nothing half-written is left


def test_headline_numbers_are_on_the_page(page: Page):
    for words in ("PSPO on liquidation", "99.48", "± 0.37", "100.72", "101.83", "31.07", "10,000", "c0ffee"):
        assert words in page.text


def test_the_command_starts_the_same_run(run: Path, page: Page):
    command = re.search(r'<pre class="command"><code>(.*?)</code>', page.source)
    assert command
    words = shlex.split(Page(command[1]).text)
    arguments = _parser().parse_args(words[1:])
    facts = made_up.config({"beta": 2.5, "reference_term": False})
    assert words[:3] == ["pspo", "train", "liquidation"]
    assert (arguments.algo, arguments.preset, arguments.seed, arguments.episodes) == ("pspo", "smoke", 3, 500)
    assert len(arguments.settings) == 2
    again = build(Config, preset("pspo", "smoke", "liquidation"), parse_settings(arguments.settings))
    assert flatten(again) == facts["settings"]


def test_spearman_on_the_page_is_scipys(page: Page):
    arrays = made_up.diagnostics()
    expected = spearmanr(arrays["uncertainty"], arrays["td_target"]).statistic
    shown = re.search(r"Spearman’s coefficient is (−?[\d.]+)", page.text)
    assert shown
    assert float(shown[1].replace("−", "-")) == pytest.approx(expected, abs=5e-5)
    assert "Negative, as in the paper" in page.text


def test_the_verdict_on_pessimism_comes_from_the_data(page: Page):
    # 139 of 135 is a score of 102.96; the last true score by regret is 100.5.
    assert "the models promise 102.96 and the simulator gives 100.50: the estimate is 2.46 points above" in page.text
    assert "It was above it at 4 of 4 looks" in page.text
    assert "never fell" in page.text


def test_changed_settings_are_marked(page: Page):
    assert f"2 of {len(keys(Config))} settings differ from the preset “smoke”: beta = 2.5 (preset: 1.0)" in page.text
    assert page.source.count('<tr class="changed">') == 2


def test_posterior_and_models_are_described(page: Page):
    assert "member 0 is trusted most: 40.0 % of the weight" in page.text
    assert "hold-out log-likelihood 2.250 nats" in page.text
    assert "25 % of the 0.80" in page.text
    assert "better than a uniform policy’s −0.700" in page.text


def test_own_data_with_hostile_names(tmp_path: Path):
    """No task, no manifest, no diagnostics, no models; every name tries to break out of its place."""
    facts = made_up.config(dataset=HOSTILE, task=None) | {"preset": HOSTILE, "algo": HOSTILE}
    facts["settings"] = {HOSTILE: HOSTILE, "steps": 1000}
    rows = [{"step": s, HOSTILE: float(s), "imagined_return": 7.0 + s} for s in (1, 2, 3, 4)]
    outcome = {"steps": 4, "seconds": 1.0, "imagined_return": 11.0}
    run = made_up.write_run(
        tmp_path / "run",
        config=facts,
        manifest={HOSTILE: HOSTILE, "libraries": {HOSTILE: HOSTILE}, "models": {HOSTILE: HOSTILE}},
        metrics=rows,
        result=outcome,
        models=None,
        diagnostics=None,
    )
    page = Page(write_report(run).read_text())
    check_self_contained(page)
    assert page.text.count(HOSTILE) > 5  # as text
    assert "policy’s true score is unknown" in page.text
    assert "the models promise a return of 11.00; without a simulator nobody can say" in page.text
    assert "There is no diagnostics.safetensors" in page.text
    assert "There is no models.json" in page.text
    assert "came from memory" in page.text
    assert "Score" not in re.findall(r"<dt>(.*?)</dt>", page.source)


def test_what_is_not_finite_is_said_and_never_shown(tmp_path: Path):
    arrays = made_up.diagnostics()
    arrays["uncertainty"][:7] = np.nan
    arrays["member_weight"][0] = np.inf
    rows = [{"step": 1, "critic_loss": float("nan"), "score": 50.0}]
    lacking = {"result": None, "models": {"pool": {"steps": 1}}, "policy": None}
    run = made_up.write_run(tmp_path / "run", diagnostics=arrays, metrics=rows, **lacking)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "scor')  # a kill tore this line
    page = Page(write_report(run).read_text())
    check_self_contained(page)
    assert not re.search(r"\b(nan|inf|None)\b", page.text, flags=re.IGNORECASE)
    assert "'critic_loss' in line 1 of metrics.jsonl is not finite" in page.text
    assert "Line 2 of metrics.jsonl cannot be read" in page.text
    assert "7 points are not finite" in page.text
    assert "Posterior weights of the pool’s members were not recorded" in page.text
    assert "no final result yet" in page.text
    assert "there is no policy at" in page.text
    for what in ("calibration", "error over several steps", "hold-out likelihood", "reference policy’s fit"):
        assert what in page.text


def test_an_algorithm_without_models_has_no_posterior_to_miss(tmp_path: Path):
    facts = made_up.config() | {"algo": "bc", "settings": {"steps": 2}}
    rows = [{"step": 1, "loss": 2.0, "score": 10.0}, {"step": 2, "loss": 1.0, "score": 20.0}]
    run = made_up.write_run(tmp_path / "run", config=facts, metrics=rows, diagnostics=None, models={}, policy=None)
    page = Page(write_report(run).read_text())
    assert "osterior" not in page.text
    assert "estimate" not in page.text
    assert "Quality of the models" not in page.text


def test_a_bare_config_still_makes_a_page(tmp_path: Path):
    nothing = dict.fromkeys(("manifest", "result", "models", "metrics", "diagnostics", "policy"))
    run = made_up.write_run(tmp_path / "run", **nothing)
    (run / "diagnostics.safetensors").write_bytes(b"damaged")
    page = Page(write_report(run).read_text())
    check_self_contained(page)
    assert page.text.count("There is no") >= 4
    assert "diagnostics.safetensors cannot be read" in page.text


def test_the_same_run_gives_the_same_bytes(tmp_path: Path):
    rows = [{"step": step, "critic_loss": 1 / step, "kl_mu": 2.0 * step} for step in (1, 2, 3)]
    run = made_up.write_run(tmp_path / "run", metrics=rows, models=None, diagnostics=None, policy=None)
    assert write_report(run).read_bytes() == write_report(run).read_bytes()


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no config\.json"):
        write_report(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match="does not hold what a run writes there"):
        write_report(tmp_path)
