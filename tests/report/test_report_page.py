"""The run page as a document: complete, self-contained, safe, with a note for everything that is missing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from pspo.algorithms.pspo.algorithm import Config
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten, keys, parse_settings
from pspo.core.errors import UserError
from pspo.core.renamed import METRICS
from pspo.report.markup import section
from pspo.report.run import contents
from pspo.report.run import page as page_module
from pspo.report.run.page import write_report
from tests.report import made_up_run as made_up
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


def test_page_is_complete_self_contained_and_small(run: Path, page: Page):
    check_self_contained(page)
    assert page.tags.count("svg") >= 15
    assert len(page.source.encode()) < 1_500_000
    assert sorted(p.name for p in run.iterdir() if p.name.startswith(".")) == []  # no temporary files


def test_headline_numbers_are_on_the_page(page: Page):
    for words in ("PSPO on liquidation", "99.48", "± 0.37", "100.72", "101.83", "31.07", "10,000", "c0ffee"):
        assert words in page.text


def test_the_command_starts_the_same_run(run: Path, page: Page):
    command = re.search(r'<pre class="command"><code>(.*?)</code>', page.source)
    assert command
    from pspo.cli.main import _parser

    words = shlex.split(Page(command[1]).text)
    arguments = _parser().parse_args(words[1:])
    expected = made_up.config({"beta": 2.5, "reference_term": False})
    assert words[:3] == ["pspo", "train", "liquidation"]
    assert (arguments.algo, arguments.preset, arguments.seed, arguments.episodes) == ("pspo", "smoke", 3, 500)
    assert len(arguments.settings) == 2
    again = build(Config, preset("pspo", "smoke", "liquidation"), parse_settings(arguments.settings))
    assert flatten(again) == expected["settings"]


def test_spearman_on_the_page_is_scipys(page: Page):
    arrays = made_up.diagnostics()
    expected = spearmanr(arrays["uncertainty"], arrays["td_target"]).statistic
    shown = re.search(r"Spearman’s coefficient is (−?[\d.]+)", page.text)
    assert shown
    assert float(shown[1].replace("−", "-")) == pytest.approx(expected, abs=5e-5)
    assert "Negative, as in the paper" in page.text


def test_model_estimate_is_compared_with_the_true_score(page: Page):
    # 139 of 135 is a score of 102.96; the last true score by regret is 100.5.
    assert "the model-estimated return is a score of 102.96, and the simulator gives 100.50" in page.text
    assert "the estimate is 2.46 points above the true score" in page.text
    assert "It was above the true score at 4 of 4 evaluations" in page.text
    assert "never fell between evaluations" in page.text


def test_lambda_at_its_lower_bound_is_explained(page: Page, tmp_path: Path):
    assert "λ ends at 0.0025." in page.text
    rows = [row | {"lambda": 1e-5} for row in made_up.metrics()]
    run = made_up.write_run(tmp_path / "run", metrics=rows, diagnostics=None, models=None, policy=None)
    assert (
        "λ ends at its lower bound: the policy stays inside the trust region"
        in Page(write_report(run).read_text()).text
    )


def test_changed_settings_are_marked(page: Page):
    assert f"2 of {len(keys(Config))} settings differ from the preset “smoke”: beta = 2.5 (preset: 1.0)" in page.text
    assert page.source.count('<tr class="changed">') == 2


def test_posterior_and_models_are_described(page: Page):
    assert "member 0 has the most weight: 40.0 %" in page.text
    assert "hold-out log-likelihood 2.250 nats" in page.text
    assert "25 % of the 0.80" in page.text
    assert "better than a uniform policy’s −0.700" in page.text


def test_own_data_with_hostile_names(tmp_path: Path):
    """No task, no manifest, no diagnostics, no models; every name tries to inject markup."""
    config = made_up.config(dataset=HOSTILE, task=None) | {"preset": HOSTILE, "algo": HOSTILE}
    config["settings"] = {HOSTILE: HOSTILE, "steps": 1000}
    rows = [{"step": s, HOSTILE: float(s), "model_return": 7.0 + s} for s in (1, 2, 3, 4)]
    outcome = {"steps": 4, "seconds": 1.0, "model_return": 11.0, "model_steps": 30, "dataset_return": 8.25}
    run = made_up.write_run(
        tmp_path / "run",
        config=config,
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
    assert "the model-estimated return is 11.00; without a simulator it cannot be verified" in page.text
    assert "plain sum of rewards over at most 30 steps, without discount or penalty; not verified" in page.text
    assert re.search(r"The dataset’s own return\s*8\.25\s*of its episodes, in the same unit", page.text)
    assert "There is no diagnostics.safetensors" in page.text
    assert "There is no models.json" in page.text
    assert "passed from memory" in page.text
    assert "Score" not in re.findall(r"<dt>(.*?)</dt>", page.source)


def test_values_that_are_not_finite_are_noted_and_never_shown(tmp_path: Path):
    arrays = made_up.diagnostics()
    arrays["uncertainty"][:7] = np.nan
    arrays["member_weight"][0] = np.inf
    rows = [{"step": 1, "critic_loss": float("nan"), "score": 50.0}]
    without = {"result": None, "models": {"pool": {"steps": 1}}, "policy": None}
    run = made_up.write_run(tmp_path / "run", diagnostics=arrays, metrics=rows, **without)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "scor')  # the process was killed here
    page = Page(write_report(run).read_text())
    check_self_contained(page)
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None)\b", page.text)
    assert "'critic_loss' in line 1 of metrics.jsonl is not finite" in page.text
    assert "Line 2 of metrics.jsonl cannot be read" in page.text
    assert "7 points are not finite" in page.text
    assert "Posterior weights of the ensemble members were not recorded" in page.text
    assert "no final result yet" in page.text
    assert "there is no policy at" in page.text
    for what in ("calibration", "error over several steps", "hold-out likelihood", "reference policy’s fit"):
        assert what in page.text


def test_an_algorithm_without_models_has_no_posterior_section(tmp_path: Path):
    config = made_up.config() | {"algo": "bc", "settings": {"steps": 2}}
    rows = [{"step": 1, "loss": 2.0, "score": 10.0}, {"step": 2, "loss": 1.0, "score": 20.0}]
    run = made_up.write_run(tmp_path / "run", config=config, metrics=rows, diagnostics=None, models={}, policy=None)
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


# Damaged files and bugs


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("models", {"pool": {"k_step_error": "abc"}}, "models.json"),
        ("result", {"score": "high"}, "'score' in"),
        ("result", {"imagined_return": [1]}, "'model_return' in"),
        ("manifest", {"timings": {"train": "long"}}, "'timings' in"),
    ],
)
def test_a_damaged_file_is_noted_on_the_page(name: str, content: Any, note: str, tmp_path: Path):
    files: dict[str, Any] = {"metrics": None, "diagnostics": None, "policy": None}
    run = made_up.write_run(tmp_path / "run", **(files | {name: content}))
    page = Page(write_report(run).read_text())
    assert note in page.text
    assert "restore it or train again" in page.text


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path):
    run = made_up.write_run(tmp_path / "run", metrics=None)
    (run / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match=r"cannot be shown, because a file cannot be read \(.*Is a directory.*metrics"):
        write_report(run)


@pytest.mark.parametrize("error", [KeyError, ValueError, TypeError, AttributeError, ZeroDivisionError, IndexError])
def test_bugs_in_a_section_raise(error: type[Exception], tmp_path: Path, monkeypatch):
    run = made_up.write_run(tmp_path / "run")

    def buggy(_: object) -> str:
        raise error("a bug")

    monkeypatch.setattr(page_module, "SECTIONS", (buggy,))
    with pytest.raises(error, match="a bug"):
        write_report(run)


@pytest.mark.parametrize("error", [KeyError, ValueError, TypeError, AttributeError, IndexError])
@pytest.mark.parametrize("part", ["metrics_row", "get_task", "_usable"])
def test_bugs_while_reading_raise(error: type[Exception], part: str, tmp_path: Path, monkeypatch):
    run = made_up.write_run(tmp_path / "run")

    def buggy(*_: object) -> None:
        raise error("a bug")

    monkeypatch.setattr(contents, part, buggy)
    with pytest.raises(error, match="a bug"):
        write_report(run)


def test_a_new_section_is_one_row_of_the_table(tmp_path: Path, monkeypatch):
    run = made_up.write_run(tmp_path / "run", metrics=None, diagnostics=None, models=None, policy=None)
    added = (*page_module.SECTIONS, lambda found: section("mine", f"Mine, seed {found.config['seed']}"))
    monkeypatch.setattr(page_module, "SECTIONS", added)
    assert "Mine, seed 3" in Page(write_report(run).read_text()).text


def test_metrics_of_version_0_1_are_shown_under_their_new_names(tmp_path: Path):
    old = {new: name for name, new in METRICS.items()}
    rows = [{old.get(name, name): value for name, value in row.items()} for row in made_up.metrics()]
    assert "imagined_return" in rows[0]
    new = made_up.write_run(tmp_path / "new", policy=None)
    old_run = made_up.write_run(tmp_path / "old", policy=None, metrics=rows)
    pages = [write_report(run).read_text().replace(str(run), "") for run in (new, old_run)]
    assert pages[0] == pages[1]
