"""A run on data that need an encoder: raw values in, the actions of training out, in NumPy, ONNX and every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pspo
from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.core.progress import silent
from pspo.data import fit_normaliser, load_dataset
from pspo.evaluation.inspect.coverage import coverage_of
from pspo.evaluation.inspect.raw_units import raw_coverage
from pspo.evaluation.inspect.state_query import make_query
from pspo.evaluation.run_inputs import dataset_of_run
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.runs.directory import open_run

OBS = ["obs_zone", "obs_clock", "obs_radius", "obs_price", "obs_when"]
NUMBERS = OBS[1:3]
ROWS = 400


def frame(seed: int = 0) -> pd.DataFrame:
    """The action follows the radius, of which float32 leaves nothing, and turns with the zone."""
    rng = np.random.default_rng(seed)
    near, zone = rng.uniform(-1, 1, ROWS), rng.choice(["north", "south"], ROWS)
    table: dict[str, Any] = {
        "obs_zone": zone,
        "obs_clock": 1.7e9 + 86400 * seed + 60.0 * np.arange(ROWS),
        "obs_radius": 6378137.0 + 0.05 * near,
        "obs_price": np.where(rng.random(ROWS) < 0.2, np.nan, rng.normal(size=ROWS)),
        "obs_when": pd.date_range("2024-01-01", periods=ROWS, freq="h"),
        "action": np.clip(np.where(zone == "north", near, -near) + 0.1 * rng.normal(size=ROWS), -1, 1),
        "reward": rng.normal(size=ROWS),
        "terminal": np.arange(ROWS) % 20 == 19,
    }
    return pd.DataFrame(table)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoded")
    frame(0).to_csv(folder / "log.csv", index=False)
    later = frame(1)
    later[later.columns[::-1]].to_csv(folder / "later.csv", index=False)
    words = ["--algo", "bc", "--preset", "smoke", "--quiet", "--set", "steps=1000", "--cyclic", "hour_of_day"]
    assert main(["train", str(folder / "log.csv"), *words, "--out", str(folder / "run")]) == 0
    assert main(["export", str(folder / "run"), str(folder / "policy.onnx")]) == 0
    return folder


def policies(folder: Path) -> list[Any]:
    return [pspo.load_policy(folder / "run"), OnnxPolicy.load(folder / "policy.onnx")]


def test_raw_values_give_the_actions_of_the_training_arrays(folder: Path) -> None:
    raw, data = frame(0)[OBS], load_dataset(folder / "log.csv", columns={"cyclic": "hour_of_day"})
    policy = pspo.load_policy(folder / "run")
    expected = policy.act_encoded(data.obs)
    turned = (raw["obs_radius"] - 6378137) * np.where(raw["obs_zone"] == "north", 1, -1)
    follows = np.corrcoef(expected[:, 0], turned[: len(expected)])[0, 1]
    assert follows > 0.6  # the zone, and the digits that float32 loses, were learned from
    for served in policies(folder):
        assert served.observation_names == tuple(OBS)
        for form in (raw.to_numpy(object), raw, raw[OBS[::-1]], [dict(row) for _, row in raw.iterrows()], dict(raw)):
            np.testing.assert_allclose(served(form)[: len(expected)], expected, atol=1e-5)
        np.testing.assert_allclose(served(raw.iloc[3]), expected[3], atol=1e-5)
        assert np.isnan(served(raw.iloc[3].to_dict() | {"obs_radius": np.nan})).all()
        with pytest.raises(UserError, match="lacks 'obs_price'"):
            served(raw.drop(columns="obs_price"))
        with pytest.raises(UserError, match="an observation has 5 values"):
            served(np.zeros(4))


def test_the_contract_says_it(folder: Path) -> None:
    stored = json.loads((folder / "policy.json").read_text())["input"]
    assert stored["shape"] == ["batch", 5]
    assert [column["dtype"] for column in stored["columns"]] == ["string", *["float64"] * 4]
    assert stored["columns"][2]["becomes"] == "number minus 6378137.0, subtracted before float32 rounds it"
    assert stored["columns"][2]["low"] == pytest.approx(frame(0)["obs_radius"].min(), abs=1e-7)
    assert stored["encoder"][0]["categories"] == ["north", "south"]
    assert stored["encoder"] == open_run(folder / "run").read("config")["encoder"]


def test_other_data_are_encoded_as_those_of_the_run(folder: Path) -> None:
    run = open_run(folder / "run")
    own = dataset_of_run(run, None, silent)
    later = dataset_of_run(run, folder / "later.csv", silent)
    assert later.encoder == own.encoder
    assert own.encoder is not None
    raw = frame(1)[: later.size]
    offsets = own.encoder.offsets[2:4]
    np.testing.assert_array_equal(later.obs[:, 2:4], (raw[NUMBERS].to_numpy() - offsets).astype(np.float32))
    np.testing.assert_array_equal(later.obs[:, 0], raw["obs_zone"] == "north")
    np.testing.assert_array_equal(later.obs[:, 5], raw["obs_price"].isna())


def test_an_inspected_state_is_given_and_shown_in_raw_values(folder: Path) -> None:
    data = load_dataset(folder / "log.csv", columns={"cyclic": "hour_of_day"})
    assert data.encoder is not None
    words = "obs_radius=6378137.02,obs_zone=south,obs_clock=1700000300,obs_price=,obs_when=2024-01-05T06:00"
    by_name = make_query(data, None, words, None).obs
    by_position = make_query(data, None, "south,1700000300,6378137.02,,2024-01-05T06:00", None).obs
    np.testing.assert_array_equal(by_name, by_position)
    fill = data.encoder.columns[3].fill
    np.testing.assert_allclose(
        by_name + data.encoder.offsets, [0, 1, 1700000300, 6378137.02, fill, 1, 1, 0], atol=1e-7, rtol=0
    )
    coverage = coverage_of(data, fit_normaliser(data), data.obs_names, by_name)
    shown = raw_coverage(coverage, data.encoder.offsets).columns[3]
    assert (shown.value, shown.low) == pytest.approx((6378137.02, frame(0)["obs_radius"].min()), abs=1e-7)
    assert not shown.outside
    assert f"{shown.value:.{shown.digits}g}" == "6378137.02"
    with pytest.raises(UserError, match="the state is nan in obs_clock, which the dataset never is"):
        make_query(data, None, "south,,6378137.02,,2024-01-05", None)
    with pytest.raises(UserError, match="'much' in the state is not a number for obs_price"):
        make_query(data, None, words.replace("price=", "price=much"), None)
    with pytest.raises(UserError, match="the state lacks 'obs_zone'"):
        make_query(data, None, words.replace("obs_zone=south,", "obs_x=1,"), None)


@pytest.mark.slow
def test_the_whole_inspection_is_in_raw_values(folder: Path, capsys) -> None:
    assert main(["inspect", str(folder / "run"), "--row", "3", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [column["value"] for column in found["coverage"]["columns"][2:4]] == pytest.approx(
        frame(0)[NUMBERS].iloc[3].tolist(), abs=1e-7
    )
    clock = found["models"]["columns"][2]
    assert (clock["now"], clock["observed"]) == (1700000180.0, 1700000240.0)
    assert clock["expected"] == pytest.approx(1700000240.0, abs=30.0)
    assert found["models"]["members"][0]["next_obs"][3] == pytest.approx(6378137.0, abs=1.0)
    assert found["logged"]["next_obs"][2] == 1700000240.0


def test_info_check_and_train_say_what_became_of_each_column(folder: Path, capsys) -> None:
    words = "obs column 'obs_radius' is a number minus 6378137.0"
    for command in (["data", "info"], ["check"], ["train", "--algo", "bc", "--preset", "smoke", "--out"]):
        out = [str(folder / "again")] if command[-1] == "--out" else []
        assert main([*command, *out, str(folder / "log.csv")]) == 0
        printed = capsys.readouterr()
        assert words in printed.out + printed.err


def test_a_dataset_that_is_encoded_otherwise_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="was not encoded as the data of the run"):
        pspo.estimate_return(folder / "run", dataset=load_dataset(folder / "later.csv"))
