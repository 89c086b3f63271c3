"""`pspo ope` and `pspo select` from end to end, on smoke runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.data import load_dataset, save_dataset
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.density import BEHAVIOURS
from pspo.evaluation.ope import ESTIMATORS, estimate_run, selection
from pspo.evaluation.ope.estimate_run import estimate_return
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.problem import make_problem, return_to_evaluate
from pspo.policies.policy import load_policy
from pspo.runs.directory import open_run
from tests.refusals import one_sentence

TINY = ["--preset", "smoke", "--quiet", "--episodes", "500"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A run of PSPO and one of BC, and a small dataset of the same kind."""
    folder = tmp_path_factory.mktemp("ope")
    for algo in ("pspo", "bc"):
        assert main(["train", "liquidation", "--algo", algo, *TINY, "--out", str(folder / algo)]) == 0
    save_dataset(load_dataset("liquidation", size=2000, seed=6), folder / "other.npz")
    return folder


@pytest.fixture(scope="module")
def estimated(runs: Path) -> dict[str, Any]:
    """What `pspo ope` prints for both, and writes into the run."""
    found = {}
    for algo in ("pspo", "bc"):
        with pytest.MonkeyPatch.context() as patch:
            printed: list[str] = []
            patch.setattr("builtins.print", lambda *words, printed=printed, **_: printed.append(str(words[0])))
            assert main(["ope", str(runs / algo), "--json", "--quiet"]) == 0
        found[algo] = json.loads(printed[-1])
    return found


@pytest.mark.parametrize("algo", ["pspo", "bc"])
def test_every_method_gives_an_estimate_with_an_interval(runs, estimated, algo) -> None:
    found = estimated[algo]
    assert json.loads((runs / algo / "ope.json").read_text()) == found
    assert (found["gamma"], found["horizon"], found["confidence"], found["data"]) == (1.0, 20, 0.9, "liquidation")
    assert (found["bounded"], found["quantity"]) == (False, "sum of rewards until the episode ends")
    assert [e["method"] for e in found["estimates"]] == [info.title for info in ESTIMATORS.values()]
    for e in found["estimates"]:
        assert e["low"] <= e["value"] <= e["high"]
    assert found["simulator_return"] == json.loads((runs / algo / "result.json").read_text())["return_mean"]
    models = found["estimates"][0]["numbers"]
    assert models["lowest_model"] <= found["estimates"][0]["value"] <= models["highest_model"]


def test_the_return_of_the_dataset_is_that_of_complete_episodes(runs, estimated) -> None:
    data = load_dataset("liquidation")
    whole = data.episode_returns()[data.terminal[data.episode_end]]
    assert estimated["bc"]["dataset_return"] == pytest.approx(whole.mean(), rel=0.01)


def test_an_estimated_behaviour_density_gives_a_warning(runs, estimated) -> None:
    warned = lambda estimates: ["behaviour density" in " ".join(e.warnings) for e in estimates]  # noqa: E731
    own = [e["warnings"] for e in estimated["bc"]["estimates"] if e["actions"] == "sampled"]
    assert len(own) == 2
    assert "behaviour density" not in str(own)
    found = estimate_return(runs / "bc", runs / "other.npz", methods=["importance"])
    assert warned(found.estimates) == [True]
    known = estimate_return(
        runs / "bc", runs / "other.npz", methods=["importance"], behaviour=BEHAVIOURS["liquidation"]
    )
    assert warned(known.estimates) == [False]
    assert estimate_run._known_behaviour("liquidation.csv") is None  # which may hold anything


def test_fitted_q_says_where_the_policy_was_trained_on_the_data(runs, estimated) -> None:
    flatters = lambda warnings: "the policy was trained on these data" in " ".join(warnings)  # noqa: E731
    own = {e["method"]: flatters(e["warnings"]) for e in estimated["bc"]["estimates"]}
    assert [method for method, said in own.items() if said] == ["fitted Q"]
    for data, said in ((load_dataset("liquidation"), True), (runs / "other.npz", False)):
        (found,) = estimate_return(runs / "bc", data, methods=["fitted-q"]).estimates
        assert flatters(found.warnings) == said


def test_another_dataset_writes_nothing_into_the_run(runs, capsys) -> None:
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


def test_a_horizon_bounds_all_methods_and_the_dataset_alike(runs, capsys) -> None:
    words = ["--data", str(runs / "other.npz"), "--quiet", "--horizon", "2"]
    assert main(["ope", str(runs / "bc"), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    data = load_dataset(runs / "other.npz")
    two = np.add.reduceat(np.where(data.ages() < 2, data.reward, 0.0), data.episode_starts)
    whole = data.terminal[data.episode_end]
    assert (found["gamma"], found["horizon"], found["bounded"]) == (1.0, 2, True)
    assert found["quantity"] == "sum of rewards over 2 steps"
    assert found["dataset_return"] == pytest.approx(two[whole].mean(), rel=0.02)
    assert found["simulator_return"] is None  # which plays whole episodes
    assert [e["method"] for e in found["estimates"]] == [info.title for info in ESTIMATORS.values()]
    assert main(["ope", str(runs / "bc"), *words, "--methods", "importance"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Mean sum of rewards over 2 steps, on {data.name}" in text
    assert f"the dataset's own │ {found['dataset_return']:.2f}" in text


def test_estimates_as_text(runs, tmp_path, capsys) -> None:
    run = shutil.copytree(runs / "pspo", tmp_path / "run")  # its ope.json is replaced
    assert main(["ope", str(run), "--quiet", "--methods", "models"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "90 % of episodes in the models return" in text
    assert "effective models" in text
    assert "In the simulator the policy returns" in text


def test_select_ranks_and_gives_the_regret(runs, estimated, capsys) -> None:
    words = [str(runs / "pspo"), str(runs / "bc"), "--by", "fitted-q"]
    assert main(["select", *words, "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == words[:2]
    value = [estimated[algo]["estimates"][1]["value"] for algo in ("pspo", "bc")]
    truth = [estimated[algo]["simulator_return"] for algo in ("pspo", "bc")]
    assert found["value"] == pytest.approx(value)
    assert found["order"] == np.argsort(-np.array(value)).tolist()
    assert found["regret"] == pytest.approx(max(truth) - truth[found["order"][0]])
    assert found["rank_correlation"] is None  # undefined for two
    assert json.loads((runs / "bc" / "ope.json").read_text()) == estimated["bc"]  # select does not change it


def test_pspos_own_posterior_is_used_only_on_its_own_dataset(runs) -> None:
    """Its critics have the units of the dataset they were trained on."""
    run = open_run(runs / "pspo")

    class Inputs(EstimatorInputs):
        @property
        def critics(self):  # pyright: ignore
            raise InterruptedError

    def models(data):
        config = evaluation_config(data, "smoke")
        problem = make_problem(load_policy(run.path), data, return_to_evaluate(data, 1.0), config.pspo.gamma)
        return Inputs(problem, config, run).models_and_critics

    assert models(load_dataset("liquidation")).own
    with pytest.raises(InterruptedError):
        models(load_dataset(runs / "other.npz"))


# Bad input: one sentence, exit code 2


def changed(runs: Path, tmp_path: Path, **changes: Any) -> Path:
    """A copy of BC's run with another configuration."""
    run = tmp_path / "run"
    shutil.copytree(runs / "bc", run)
    config = json.loads((run / "config.json").read_text()) | changes
    (run / "config.json").write_text(json.dumps(config))
    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gamma", "1.5"], "gamma=1.5 is out of range"),
        (["--gamma", "nan"], "gamma=nan is out of range"),
        (["--gamma", "0"], "gamma=0.0 is out of range"),
        (["--horizon", "0"], "horizon=0 is out of range"),
        (["--confidence", "90"], "confidence=90.0 is out of range"),
        (["--threads", "0"], "--threads 0 is out of range"),
        (["--methods", "fitted-w"], "did you mean 'fitted-q'"),
        (["--data", "no-such-file.npz"], "no-such-file.npz"),
    ],
)
def test_bad_arguments_are_refused(runs, words, says, capsys) -> None:
    assert main(["ope", str(runs / "bc"), "--quiet", *words]) == 2
    one_sentence(capsys.readouterr().err, says)


def test_an_unfinished_run_is_refused_before_any_estimate(runs, tmp_path, capsys, monkeypatch) -> None:
    run = changed(runs, tmp_path)
    (run / "result.json").unlink()
    assert main(["ope", str(run), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, f"{run} is not finished: `pspo resume {run}` first.")
    monkeypatch.setattr(estimate_run, "estimate_return", lambda *_, **__: pytest.fail("it was estimated"))
    assert main(["select", str(runs / "bc"), str(run), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "is not finished")


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys) -> None:
    assert main(["ope", str(tmp_path), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "is not a run directory")


def test_data_that_changed_are_refused(runs, tmp_path, capsys) -> None:
    run = changed(runs, tmp_path, dataset=str(runs / "other.npz"))
    assert main(["ope", str(run), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "have changed since it was trained")


def test_data_of_another_size_or_with_nan_are_refused(runs, tmp_path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.normal(size=(100, 4)),
        "actions": rng.uniform(-1, 1, size=(100, 1)),
        "rewards": rng.normal(size=100),
        "terminals": np.arange(100) % 10 == 9,
    }
    with pytest.raises(UserError, match=r"has 3 observation and 1 action columns, and .* has 4 and 1"):
        estimate_return(runs / "bc", arrays)
    data = load_dataset(runs / "other.npz")
    reward = np.array(data.reward)
    reward[3] = np.nan
    fields = {name: getattr(data, name) for name in ("obs", "action", "next_obs", "terminal", "timeout")}
    bounds = {"action_low": data.action_low, "action_high": data.action_high}
    spoiled = type(data)(**fields, **bounds, reward=reward)
    with pytest.raises(UserError, match=r"not finite|NaN|nan"):
        estimate_return(runs / "bc", save_dataset(spoiled, tmp_path / "spoiled.npz"))


def test_runs_on_different_data_do_not_compare(runs, tmp_path, capsys) -> None:
    run = changed(runs, tmp_path)
    manifest = json.loads((run / "manifest.json").read_text()) | {"data_hash": "another"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert main(["select", str(runs / "bc"), str(run), "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "different data")
    assert selection.estimate_runs([runs / "bc"] * 2, str) == [str(runs / "bc")] * 2
