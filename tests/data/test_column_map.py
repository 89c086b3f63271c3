"""A TOML file beside the data says how to read them; `pspo data describe` writes a first version."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.data import load_dataset
from pspo.data.load import describe_source
from tests.data.test_time_order import COLUMNS, log, taken

MAP = """
[columns]
obs = ["x"]
action = "u"
reward = "r"
episode = ["id"]
time = "t"
action_low = -2
action_high = [2]
"""


def written(tmp_path: Path) -> Path:
    order = np.random.default_rng(0).permutation(48)
    pyarrow.csv.write_csv(pa.table(taken(log(), order)), tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_the_map_is_used_and_options_replace_its_entries(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(UserError, match="no column is known to be the obs"):
        load_dataset(path)
    (tmp_path / "log.toml").write_text(MAP)
    dataset = load_dataset(path)
    bounds = {"action_low": -2, "action_high": 2}
    assert dataset.hash == load_dataset(pa.table(log()), columns=COLUMNS | bounds).hash
    assert f"columns are those of '{tmp_path / 'log.toml'}'." in dataset.notes
    assert load_dataset(path, columns={"action_high": 3, "action_low": -3}).action_high.tolist() == [3.0]
    with pytest.raises(UserError, match="no column is known to be the obs"):
        load_dataset(path, use_map=False)


def test_a_folder_has_its_map_beside_it(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs")
    (tmp_path / "logs.toml").write_text(MAP)
    sources = (tmp_path / "logs", str(tmp_path / "logs" / "*.csv"), [tmp_path / "logs" / "log.csv"])
    assert len({load_dataset(source).hash for source in sources[:2]}) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[columns]\nobz = 'x'", "unknown role of a column 'obz': did you mean 'obs'?"),
        ("[columns]\nobs = 3", "columns of obs are 3"),
        ("columns = 3", "is not a table"),
        ("obs = 'x'\nreward = 'r'", "is in no table: write [columns] in a line above it"),
        ("action = 'a'\n[columns]\nobs = 'x'", "'action' in "),
        ("[columns", "cannot be read"),
        ("[columns]\naction_low = 'a'\naction_high = 1", "action_low is 'a'"),
        ("[columns]\naction_low = 0", "only action_low is given"),
    ],
)
def test_a_wrong_map_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path)
    (tmp_path / "log.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        load_dataset(path)
    assert words in str(caught.value)
    assert str(tmp_path / "log.toml") in str(caught.value)


def test_other_toml_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log.toml").write_text("[tool]\nname = 'x'")
    with pytest.raises(UserError, match="no column is known to be the obs"):
        load_dataset(written(tmp_path))


def test_describe_writes_a_map_that_reads_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = log() | {"site_id": np.repeat(["a", "b"], 24), "propensity": np.full(48, 0.5)}
    del table["id"]
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "plant.csv")
    assert main(["data", "describe", str(tmp_path / "plant.csv"), "--action", "u", "--reward", "r"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["columns"] == {
        "obs": ["x"],
        "action": ["u"],
        "reward": "r",
        "episode": ["site_id"],
        "time": "t",
        "propensity": "propensity",
    }
    assert "text, 2 values: 'a', 'b'" in text
    (tmp_path / "plant.toml").write_text(text)
    dataset = load_dataset(tmp_path / "plant.csv")
    assert (dataset.size, len(dataset.episode_starts)) == (46, 2)
    assert dataset.propensity is not None
    assert main(["data", "describe", "liquidation"]) == 2
    assert "has no columns to name" in capsys.readouterr().err


def described(table: dict[str, Any], tmp_path: Path, **columns: str) -> dict[str, Any]:
    """The entries that `describe` writes; the data can be read with them."""
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "log.csv")
    text = describe_source(tmp_path / "log.csv", columns)
    (tmp_path / "log.toml").write_text(text)
    load_dataset(tmp_path / "log.csv")
    return tomllib.loads(text)["columns"]


def test_describe_takes_patterns(tmp_path: Path) -> None:
    table = log() | {"x2": np.arange(48) / 7}
    roles = {"obs": ["x", "x2"], "action": ["u"], "reward": "r", "episode": ["id"], "time": "t"}
    assert described(table, tmp_path, obs="x*", action="u", reward="r") == roles
    assert described(table, tmp_path, obs="x2,x", action="u", reward="r") == roles | {"obs": ["x2", "x"]}
    assert described(table, tmp_path, obs="*", action="u", reward="r", ignore="x2") == roles | {
        "obs": ["x"],
        "ignore": "x2",
    }
    with pytest.raises(UserError, match=r"no column fits 'y\*' \(obs\)"):
        describe_source(tmp_path / "log.csv", {"obs": "y*"})


def test_describe_proposes_categories_cycles_labels_and_propensities(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    hours = (np.datetime64("2024-01-01T00:00:00") + np.arange(480) * np.timedelta64(1, "h")).astype("datetime64[s]")
    table = {
        "day": np.repeat(np.arange(20), 24),
        "clock": hours,
        "zone": random.choice(["north", "south"], 480),
        "machine_type": random.integers(0, 4, 480),
        "load": random.normal(size=480),
        "count": random.integers(0, 4, 480),
        "move": random.integers(0, 3, 480),
        "reward": random.normal(size=480),
        "density": random.uniform(0.1, 0.9, 480),
        "rain_prob": np.zeros(480),
    }
    roles = {"action": "move", "episode": "day", "time": "clock"}
    found = described(table, tmp_path, **roles, obs="clock,zone,machine_type,load,count")
    assert found["categorical"] == ["zone", "machine_type"]
    assert found["cyclic"] == ["hour_of_day", "day_of_week"]
    assert found["discrete"] is True
    assert found["propensity"] == "density"
    dataset = load_dataset(tmp_path / "log.csv")
    assert dataset.discrete
    assert dataset.propensity is not None
    assert {"machine_type=3", "zone=north", "clock day_of_week cos"} <= set(dataset.obs_names)
    daily = table | {"clock": hours.astype("datetime64[D]"), "move": random.normal(size=480)}
    daily["clock"] = hours[::24].astype("datetime64[D]")[np.arange(480) % 20]
    daily["day"] = np.arange(480) // 20
    found = described(daily, tmp_path, **roles, obs="clock,load")
    assert found["cyclic"] == ["day_of_week"]
    assert not {"categorical", "discrete"} & set(found)
