"""Data for a run may have their columns in any order: they are matched by name, also for runs of earlier versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pspo
from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.core.progress import silent
from pspo.evaluation.run_inputs import dataset_of_run
from pspo.runs.directory import open_run

OBS = ["obs_time", "obs_inventory", "obs_price"]
ACTION = ["action_sell", "action_hedge"]
OLD = Path(__file__).parents[1] / "fixtures" / "run-of-0.1-finished"


def frame(seed: int, rows: int = 300) -> pd.DataFrame:
    """Ten steps per episode; the reward depends on the columns in different ways, so that their order matters."""
    rng = np.random.default_rng(seed)
    table: dict[str, Any] = {"obs_time": np.arange(rows) % 10, "obs_inventory": rng.uniform(0, 100, rows)}
    table["obs_price"] = rng.normal(1, 0.3, rows)
    table |= {name: rng.uniform(-1, 1, rows) for name in ACTION}
    table["reward"] = table["obs_price"] * table["action_sell"] - 0.1 * table["action_hedge"] ** 2
    return pd.DataFrame(table | {"terminal": np.arange(rows) % 10 == 9}).astype("float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("columns")
    frame(0).to_csv(folder / "log.csv", index=False)
    frame(1).to_csv(folder / "later.csv", index=False)
    permuted = frame(1)[["action_hedge", "obs_price", "reward", "obs_time", "terminal", "action_sell", "obs_inventory"]]
    permuted.to_csv(folder / "permuted.csv", index=False)
    words = ["--algo", "bc", "--preset", "smoke", "--quiet"]
    assert main(["train", str(folder / "log.csv"), *words, "--out", str(folder / "run")]) == 0
    # What version 0.1 wrote for the same file: columns sorted by name, and no word about how they were chosen.
    listed = ["--obs", ",".join(sorted(OBS)), "--action", ",".join(sorted(ACTION))]
    assert main(["train", str(folder / "log.csv"), *words, *listed, "--out", str(folder / "old")]) == 0
    config = json.loads((folder / "old" / "config.json").read_text())
    (folder / "old" / "config.json").write_text(json.dumps(config | {"columns": None}))
    return folder


def estimates(run: Path, data: Path | None, capsys) -> list[Any]:
    words = ["--methods", "importance", "--json", "--quiet"] + ([] if data is None else ["--data", str(data)])
    assert main(["ope", str(run), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    return [found["dataset_return"], found["estimates"]]


def test_a_run_stores_its_columns_in_the_order_of_the_file(folder: Path) -> None:
    assert open_run(folder / "run").read("config")["names"] == {"obs": OBS, "action": ACTION}
    policy = pspo.Policy.load(folder / "run" / "policy.safetensors")
    assert (policy.observation_names, policy.action_names) == (tuple(OBS), tuple(ACTION))


@pytest.mark.parametrize("run", ["run", "old"])
def test_permuted_data_give_the_same_estimates(folder: Path, run: str, capsys) -> None:
    original = estimates(folder / run, folder / "later.csv", capsys)
    assert estimates(folder / run, folder / "permuted.csv", capsys) == original
    assert np.isfinite(original[1][0]["value"])


def test_an_old_run_reads_its_own_data_in_its_own_order(folder: Path, capsys) -> None:
    own = estimates(folder / "old", None, capsys)
    assert estimates(folder / "old", folder / "log.csv", capsys) == own
    run = open_run(folder / "old")
    data = dataset_of_run(run, None, silent)
    assert data.obs_names == tuple(sorted(OBS))
    np.testing.assert_array_equal(data.obs[:, 1], frame(0)["obs_price"][: data.size])


def test_a_stopped_run_resumes_with_its_own_order(folder: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(folder / "old", tmp_path / "run"))
    before = (run / "policy.safetensors").read_bytes()
    for name in ("result.json", "policy.safetensors"):
        (run / name).unlink()
    assert main(["resume", str(run), "--quiet"]) == 0
    assert (run / "policy.safetensors").read_bytes() == before


def test_rows_of_permuted_data_are_read_by_name(folder: Path) -> None:
    run = open_run(folder / "run")
    other = dataset_of_run(run, folder / "permuted.csv", silent)
    later = pspo.load_dataset(folder / "later.csv")
    assert (other.obs_names, other.hash) == (later.obs_names, later.hash)


@pytest.mark.parametrize("command", [["ope"], ["inspect", "--row", "0"]])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.rename(columns={"obs_price": "obs_cost"}), "lacks 'obs_price' and has the unknown 'obs_cost'"),
        (lambda t: t.drop(columns="obs_price"), "the obs of 'other' lacks 'obs_price'"),
        (lambda t: t.assign(obs_more=0.0), "the obs of 'other' has the unknown 'obs_more'"),
        (lambda t: t.rename(columns={"action_sell": "action_x"}), "the action of 'other' lacks 'action_sell' and has"),
    ],
)
def test_missing_and_unknown_names_are_refused(folder: Path, tmp_path: Path, command, change, says, capsys) -> None:
    change(frame(1)).to_csv(tmp_path / "other.csv", index=False)
    name, *words = command
    assert main([name, str(folder / "run"), *words, "--data", str(tmp_path / "other.csv"), "--quiet"]) == 2
    printed = capsys.readouterr().err.strip()
    assert says in printed
    assert "\n" not in printed


def test_the_run_of_version_01_takes_a_table_in_another_order(tmp_path: Path) -> None:
    data = pspo.load_dataset("liquidation", size=500, seed=4)
    names = data.obs_names
    table = {f"obs_{names[d]}": data.obs[:, d] for d in (2, 0, 1)} | {"action_fraction sold": data.action[:, 0]}
    table |= {f"next_obs_{names[d]}": data.next_obs[:, d] for d in range(3)}
    table |= {"reward": data.reward, "terminal": data.terminal, "timeout": data.timeout}
    pd.DataFrame(table).to_csv(tmp_path / "log.csv", index=False)
    run = open_run(OLD)
    read = dataset_of_run(run, tmp_path / "log.csv", silent)
    assert read.hash == data.hash
    other = {name.replace("price", "cost"): values for name, values in table.items()}
    with pytest.raises(UserError, match="lacks 'price' and has the unknown 'obs_cost'"):
        dataset_of_run(run, pd.DataFrame(other), silent)


@pytest.mark.parametrize("run", ["run", "old"])
def test_the_trained_policy_is_served_by_name(folder: Path, run: str, tmp_path: Path, capsys) -> None:
    """A frame in any order gives the actions of the arrays that the run was trained on, from NumPy and from ONNX."""
    opened = open_run(folder / run)
    data = dataset_of_run(opened, None, silent)
    assert main(["export", str(folder / run), str(tmp_path / "policy.onnx")]) == 0
    contract = json.loads((tmp_path / "policy.json").read_text())
    assert [column["name"] for column in contract["input"]["columns"]] == [*data.obs_names]
    shuffled: Any = frame(0)[["obs_price", "obs_time", "obs_inventory"]][: data.size]
    for policy in (pspo.load_policy(folder / run), pspo.OnnxPolicy.load(tmp_path / "policy.onnx")):
        assert (policy.observation_names, policy.action_names) == (data.obs_names, data.action_names)
        np.testing.assert_array_equal(policy(shuffled), policy(data.obs))
        assert not np.array_equal(policy(shuffled.to_numpy()), policy(data.obs))
