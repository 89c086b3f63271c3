"""Discrete actions from the command line: train, resume, ope, inspect, export, and what refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import pspo
from pspo.algorithms.registry import ALGORITHMS
from pspo.cli.main import main
from pspo.core import checkpoint
from pspo.core.errors import UserError
from pspo.core.files import read_arrays
from pspo.data import save_dataset
from pspo.training.monitor import SILENT
from tests.discrete import wear

ABLE = [name for name, info in ALGORITHMS.items() if info.discrete]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in which `replace` is never taken at wear 0 or 1."""
    full = wear.dataset(episodes=40)
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    kept = ~((full.obs[:, 0] < 2) & (full.action_codes == 1))
    kept &= ~full.timeout
    arrays = {
        "obs": full.obs[kept],
        "action": np.array(wear.LABELS)[full.action_codes[kept]],
        "reward": full.reward[kept],
        "next_obs": full.next_obs[kept],
        "terminal": np.zeros(kept.sum(), bool),
        "timeout": np.arange(kept.sum()) % 20 == 19,
    }
    return save_dataset(pspo.Dataset(**arrays, action_labels=wear.LABELS, obs_names=("wear",)), path)


@pytest.fixture(scope="module")
def run(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One smoke run of PSPO with a mask."""
    out = tmp_path_factory.mktemp("run") / "pspo"
    words = ["train", str(log), "--preset", "smoke", "--out", str(out), "--quiet"]
    assert main([*words, "--obs", "obs_wear", "--mask", "replace: obs_wear >= 2"]) == 0
    return out


def states() -> np.ndarray:
    return np.arange(10, dtype=np.float32)[:, None]


def test_the_policy_gives_labels_and_keeps_to_the_mask(run: Path) -> None:
    policy = pspo.load_policy(run)
    assert policy.action_labels == wear.LABELS
    labels = policy(states())
    assert set(labels) <= set(wear.LABELS)
    assert policy({"obs_wear": 3.0}) == labels[3]
    probability = policy.probabilities(states())
    np.testing.assert_allclose(probability.sum(1), 1.0, rtol=1e-5)
    assert (probability[:2, 1] == 0.0).all()
    assert (probability[2:] > 0.0).all()
    assert labels.tolist() == [wear.LABELS[i] for i in probability.argmax(1)]
    drawn = [policy.sample(states(), np.random.default_rng(seed)) for seed in range(30)]
    assert "replace" not in np.stack(drawn)[:, :2]
    assert len(np.unique(np.stack(drawn))) == 3
    assert "repair, replace, run" in repr(policy)
    with pytest.raises(UserError, match="not a number"):
        policy([float("nan")])
    with pytest.raises(UserError, match="no bounds"):
        _ = policy.action_bounds


def test_a_killed_run_resumes_bit_for_bit(run: Path, tmp_path: Path) -> None:
    """From the checkpoint after the first chunk: the rest of the run again."""
    import shutil

    other = tmp_path / "stopped"
    shutil.copytree(run, other)
    for name in ("result.json", "policy.safetensors"):
        (other / name).unlink()
    shutil.rmtree(other / "checkpoints")
    pspo.resume(other, monitor=SILENT)
    before, after = (read_arrays(folder / "policy.safetensors")[0] for folder in (run, other))
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    assert checkpoint.require_inside(other / "checkpoints") is None


def test_the_exported_graph_is_the_policy(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), str(tmp_path / "p.onnx")]) == 0
    policy, exported = pspo.load_policy(run), pspo.OnnxPolicy.load(tmp_path / "p.onnx")
    assert exported.action_labels == wear.LABELS
    np.testing.assert_array_equal(exported(states()), policy(states()))
    np.testing.assert_allclose(exported.probabilities(states()), policy.probabilities(states()), atol=1e-6)
    np.testing.assert_allclose(exported.logits(states()), policy.logits(states()), rtol=1e-5)
    assert exported({"obs_wear": 4}) == policy([4.0])
    outputs = exported.outputs(np.array([[np.nan], [0.0]], np.float32))
    assert outputs["action"][0] == -1
    assert outputs["probabilities"][1, 1] == 0.0
    with pytest.raises(UserError, match="not a number"):
        exported([np.nan])
    contract = json.loads((tmp_path / "p.json").read_text())
    assert contract["output"]["labels"] == [*wear.LABELS]


def test_the_policy_on_jax_is_the_policy(run: Path) -> None:
    policy, on_device = pspo.load_policy(run), pspo.JaxPolicy.load(run)
    table = {"obs_wear": states()[:, 0]}
    assert on_device(table).tolist() == policy(states()).tolist()
    np.testing.assert_allclose(on_device.logits(table), policy.logits(states()), rtol=1e-5)
    np.testing.assert_allclose(on_device.probabilities(table), policy.probabilities(states()), atol=1e-6)
    drawn = [on_device.sample(states(), jax.random.PRNGKey(seed)) for seed in range(30)]
    assert "replace" not in np.stack(drawn)[:, :2]
    assert len(np.unique(np.stack(drawn))) == 3
    inside = jax.jit(jax.vmap(on_device.act_encoded))(states())
    assert [wear.LABELS[code] for code in np.asarray(inside).argmax(1)] == policy(states()).tolist()
    for bad, words in (([np.nan], "not a number"), ({"wear": 1.0}, "lacks 'obs_wear'"), ([1.0, 2.0], "has 1 numbers")):
        with pytest.raises(UserError, match=words):
            on_device(bad)
    with pytest.raises(UserError, match="not a number"):
        on_device.sample([np.nan], jax.random.PRNGKey(0))
    assert "repair, replace, run" in repr(on_device)


def test_ope_has_all_four_estimates(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ope", str(run), "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [estimate["method"] for estimate in result["estimates"]] == [
        *("posterior models", "fitted Q", "importance sampling", "doubly robust")
    ]
    assert all(np.isfinite(estimate["value"]) for estimate in result["estimates"])
    warnings = [text for estimate in result["estimates"] for text in estimate["warnings"]]
    assert not any("at a bound" in text for text in warnings)


def test_inspect_shows_every_label(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inspect", str(run), "--row", "7", "--quiet", "--out", str(tmp_path / "i.png")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in wear.LABELS)
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    policy = pspo.load_policy(run)
    row = pspo.load_dataset(policy.metadata["dataset"]).obs[7]
    np.testing.assert_allclose(
        [label["probability"] for label in result["labels"]], policy.probabilities(row), atol=1e-5
    )
    assert result["values"]["marks"][0]["action"] == [policy(row)]
    assert (tmp_path / "i.png").stat().st_size > 10_000


def test_data_with_fewer_labels_are_read_with_those_of_the_run(run: Path, tmp_path: Path) -> None:
    from pspo.runs.directory import open_run

    part = wear.dataset(episodes=2)
    kept = part.action_codes != 0
    fewer = pspo.Dataset(
        obs=part.obs[kept],
        action=np.array(wear.LABELS)[part.action_codes[kept]],
        reward=part.reward[kept],
        next_obs=part.next_obs[kept],
        terminal=np.zeros(kept.sum(), bool),
        timeout=np.ones(kept.sum(), bool),
        action_labels=("replace", "run"),
    )
    own = open_run(run).in_own_order(fewer)
    assert own.action_labels == wear.LABELS
    np.testing.assert_array_equal(own.action_codes, fewer.action_codes + 1)


@pytest.mark.parametrize("algo", [name for name in ALGORITHMS if name not in ABLE])
def test_the_others_refuse_before_any_work(
    algo: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", str(log), "--algo", algo, "--out", str(out), "--quiet"]) == 2
    message = capsys.readouterr().err
    assert "cannot learn discrete actions" in message
    assert message.count("\n") == 1
    assert not out.exists()


def test_settings_without_effect_are_refused(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", str(log), "--out", str(tmp_path / "run"), "--quiet"]
    assert main([*words, "--set", "action_samples=4"]) == 2
    assert "no effect on discrete actions" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("algo", [name for name in ABLE if name != "pspo"])
def test_every_other_algorithm_runs_with_a_mask(algo: str, log: Path, tmp_path: Path) -> None:
    run = pspo.train(
        log, algo, preset="smoke", out=tmp_path / "run", columns={"mask": "replace: obs_wear >= 2"}, monitor=SILENT
    )
    assert (run.policy.probabilities(states())[:2, 1] == 0.0).all()
