"""`pspo ope` and `pspo select` from end to end, on runs of seconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.core.progress import silent
from pspo.data import load_dataset, save_dataset
from pspo.evaluation.ope import METHODS, of_run, selection
from pspo.evaluation.ope.believed import find_models
from pspo.evaluation.ope.density import BEHAVIOURS
from pspo.evaluation.ope.of_run import judge_run
from pspo.evaluation.ope.recipe import recipe_for
from pspo.evaluation.ope.subject import make_subject
from pspo.policies.policy import load_policy
from pspo.runs.directory import open_run

TINY = ["--preset", "smoke", "--quiet", "--episodes", "500"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """PSPO's and a clone's, and a small log of the same kind."""
    folder = tmp_path_factory.mktemp("ope")
    for algo in ("pspo", "bc"):
        assert main(["train", "liquidation", "--algo", algo, *TINY, "--out", str(folder / algo)]) == 0
    save_dataset(load_dataset("liquidation", size=2000, seed=6), folder / "other.npz")
    return folder


@pytest.fixture(scope="module")
def judged(runs: Path) -> dict[str, Any]:
    """What `pspo ope` prints of both; it leaves the same beside the run."""
    found = {}
    for algo in ("pspo", "bc"):
        with pytest.MonkeyPatch.context() as patch:
            printed: list[str] = []
            patch.setattr("builtins.print", lambda *words, printed=printed, **_: printed.append(str(words[0])))
            assert main(["ope", str(runs / algo), "--json", "--quiet"]) == 0
        found[algo] = json.loads(printed[-1])
    return found


@pytest.mark.parametrize("algo", ["pspo", "bc"])
def test_every_method_gives_an_estimate_with_an_interval(runs, judged, algo) -> None:
    found = judged[algo]
    assert json.loads((runs / algo / "ope.json").read_text()) == found
    assert (found["gamma"], found["horizon"], found["confidence"], found["data"]) == (1.0, 20, 0.9, "liquidation")
    assert [e["method"] for e in found["estimates"]] == list(METHODS.values())
    for e in found["estimates"]:
        assert e["low"] <= e["value"] <= e["high"]
    assert found["truth"] == json.loads((runs / algo / "result.json").read_text())["return_mean"]
    models = found["estimates"][0]["numbers"]
    assert models["lowest_model"] <= found["estimates"][0]["value"] <= models["highest_model"]


def test_the_logs_own_mean_is_that_of_its_whole_episodes(runs, judged) -> None:
    data = load_dataset("liquidation")
    whole = data.episode_returns()[data.terminal[data.episode_end]]
    assert judged["bc"]["logged"] == pytest.approx(whole.mean(), rel=0.01)


def test_an_estimated_behaviour_is_said_and_the_built_in_logs_is_known(runs, judged) -> None:
    doubts = lambda estimates: ["density of the behaviour" in " ".join(e.warnings) for e in estimates]  # noqa: E731
    own = [e["warnings"] for e in judged["bc"]["estimates"] if e["judges"] == "sampled"]
    assert len(own) == 2
    assert "density of the behaviour" not in str(own)
    found = judge_run(runs / "bc", runs / "other.npz", methods=["importance"])
    assert doubts(found.estimates) == [True]
    known = judge_run(runs / "bc", runs / "other.npz", methods=["importance"], behaviour=BEHAVIOURS["liquidation"])
    assert doubts(known.estimates) == [False]
    assert of_run._known_behaviour("liquidation.csv") is None  # which may hold anything


def test_another_log_judges_too_and_leaves_nothing(runs, capsys) -> None:
    run = runs / "bc"
    before = (run / "ope.json").read_bytes()
    words = ["--data", str(runs / "other.npz"), "--methods", "fitted-q", "--gamma", "0.9", "--confidence", "0.5"]
    assert main(["ope", str(run), *words]) == 0
    text = capsys.readouterr()
    assert "fitted Q" in text.out
    assert "discounted by 0.9" in text.out
    assert "50 % interval" in text.out
    assert "2,000 transitions" in text.err
    assert "In the simulator" not in text.out  # whose returns are not discounted
    assert "doubly" not in text.out
    assert (run / "ope.json").read_bytes() == before


def test_the_policy_is_judged_in_words(runs, tmp_path, capsys) -> None:
    run = shutil.copytree(runs / "pspo", tmp_path / "run")  # its ope.json is replaced
    assert main(["ope", str(run), "--quiet", "--methods", "models"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Nine tenths of imagined episodes return" in text
    assert "effective models" in text
    assert "In the simulator the policy as it acts has" in text


def test_select_ranks_and_says_what_the_choice_costs(runs, judged, capsys) -> None:
    words = [str(runs / "pspo"), str(runs / "bc"), "--by", "fitted-q"]
    assert main(["select", *words, "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == words[:2]
    value = [judged[algo]["estimates"][1]["value"] for algo in ("pspo", "bc")]
    truth = [judged[algo]["truth"] for algo in ("pspo", "bc")]
    assert found["value"] == pytest.approx(value)
    assert found["order"] == np.argsort(-np.array(value)).tolist()
    assert found["regret"] == pytest.approx(max(truth) - truth[found["order"][0]])
    assert found["rank_correlation"] is None  # of two there is none
    assert json.loads((runs / "bc" / "ope.json").read_text()) == judged["bc"]  # selecting leaves it alone


def test_pspos_own_posterior_judges_by_its_own_log_alone(runs) -> None:
    """Its critics have the units of the log they were trained on."""
    run, asked = open_run(runs / "pspo"), []

    def fitted():
        asked.append(True)
        raise InterruptedError

    def models(data):
        recipe = recipe_for(data, "smoke")
        subject = make_subject(load_policy(run.path), data, None, 1.0, recipe.pspo.gamma)
        return find_models(subject, run, recipe.pspo, fitted, silent)

    assert len(models(load_dataset("liquidation")).critics) == 3
    assert not asked
    with pytest.raises(InterruptedError):
        models(load_dataset(runs / "other.npz"))


# Bad input: one sentence, exit code 2


def changed(runs: Path, tmp_path: Path, **facts: Any) -> Path:
    """A copy of the clone's run whose configuration says something else."""
    run = tmp_path / "run"
    shutil.copytree(runs / "bc", run)
    config = json.loads((run / "config.json").read_text()) | facts
    (run / "config.json").write_text(json.dumps(config))
    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gamma", "1.5"], "gamma=1.5 is out of range"),
        (["--gamma", "nan"], "gamma=nan is out of range"),
        (["--gamma", "0"], "gamma=0.0 is out of range"),
        (["--confidence", "90"], "confidence=90.0 is out of range"),
        (["--threads", "0"], "--threads 0 is out of range"),
        (["--methods", "fitted-w"], "did you mean 'fitted-q'"),
        (["--data", "no-such-file.npz"], "no-such-file.npz"),
    ],
)
def test_a_wrong_word_is_named(runs, words, says, capsys) -> None:
    assert main(["ope", str(runs / "bc"), "--quiet", *words]) == 2
    assert_one_sentence(capsys.readouterr().err, says)


def assert_one_sentence(text: str, says: str) -> None:
    said = text.strip().splitlines()
    assert len(said) == 1, text
    assert said[0].startswith("pspo: ")
    assert says in said[0]


def test_an_unfinished_run_is_refused_before_others_are_judged(runs, tmp_path, capsys, monkeypatch) -> None:
    run = changed(runs, tmp_path)
    (run / "result.json").unlink()
    assert main(["ope", str(run), "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, f"{run} is not finished: `pspo resume {run}` first.")
    monkeypatch.setattr(of_run, "judge_run", lambda *_: pytest.fail("it was judged"))
    assert main(["select", str(runs / "bc"), str(run), "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "is not finished")


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys) -> None:
    assert main(["ope", str(tmp_path), "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "is not a run directory")


def test_data_that_changed_are_refused(runs, tmp_path, capsys) -> None:
    run = changed(runs, tmp_path, dataset=str(runs / "other.npz"))
    assert main(["ope", str(run), "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "have changed since it was trained")


def test_data_of_another_size_or_with_a_nan_are_refused(runs, tmp_path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.normal(size=(100, 4)),
        "actions": rng.uniform(-1, 1, size=(100, 1)),
        "rewards": rng.normal(size=100),
        "terminals": np.arange(100) % 10 == 9,
    }
    with pytest.raises(UserError, match=r"takes 3 numbers and gives 1, and .* has 4 and 1"):
        judge_run(runs / "bc", arrays)
    data = load_dataset(runs / "other.npz")
    reward = np.array(data.reward)
    reward[3] = np.nan
    fields = {name: getattr(data, name) for name in ("obs", "action", "next_obs", "terminal", "timeout")}
    bounds = {"action_low": data.action_low, "action_high": data.action_high}
    spoiled = type(data)(**fields, **bounds, reward=reward)
    with pytest.raises(UserError, match=r"not finite|NaN|nan"):
        judge_run(runs / "bc", save_dataset(spoiled, tmp_path / "spoiled.npz"))


def test_runs_on_different_data_do_not_compare(runs, tmp_path, capsys) -> None:
    run = changed(runs, tmp_path)
    manifest = json.loads((run / "manifest.json").read_text()) | {"data_hash": "another"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert main(["select", str(runs / "bc"), str(run), "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "different data")
    assert selection.judge_runs([runs / "bc"] * 2, str) == [str(runs / "bc")] * 2
