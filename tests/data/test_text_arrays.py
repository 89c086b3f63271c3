"""Texts in a dictionary of arrays are encoded as in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pspo
from pspo.core.errors import UserError
from pspo.data import load_dataset

ROWS = 120


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "episode": np.arange(ROWS) // 6,
        "obs_zone": random.choice(["north", "south", "west"], ROWS),
        "obs_level": random.normal(size=ROWS),
        "action_valve": random.uniform(-1, 1, ROWS),
        "reward": random.normal(size=ROWS),
        "terminal": np.arange(ROWS) % 6 == 5,
    }


def test_texts_are_encoded_as_in_a_data_frame() -> None:
    expected = load_dataset(pd.DataFrame(arrays()))
    assert expected.encoder is not None
    lists = {name: array.tolist() for name, array in arrays().items()}
    for table in (arrays(), lists, arrays() | {"obs_zone": arrays()["obs_zone"].astype(object)}):
        found = load_dataset(table)
        assert (found.hash, found.obs_names) == (expected.hash, expected.obs_names)
        columns = {"obs": "obs_*", "action": "action_valve"}
        assert load_dataset(table, columns=columns).hash == expected.hash


def test_numbers_alone_need_no_encoder_and_no_columns() -> None:
    numbers = {name: array for name, array in arrays().items() if name != "obs_zone"}
    found = load_dataset(numbers)
    assert found.encoder is None
    assert found.hash == load_dataset(pd.DataFrame(numbers)).hash


def test_gaps_and_dates_are_encoded_too() -> None:
    zone = arrays()["obs_zone"].astype(object)
    zone[3] = None
    when = np.datetime64("2024-01-01T00") + np.arange(ROWS)
    table = arrays() | {"obs_zone": zone, "obs_when": when}
    found = load_dataset(table, columns={"obs": "obs_*", "cyclic": "hour_of_day"})
    expected = load_dataset(pd.DataFrame(table), columns={"obs": "obs_*", "cyclic": "hour_of_day"})
    assert {"obs_zone is missing", "obs_when hour_of_day sin"} <= set(found.obs_names)
    np.testing.assert_array_equal(found.obs, expected.obs[:, [expected.obs_names.index(n) for n in found.obs_names]])


def test_two_axes_of_objects_under_the_names_of_d4rl() -> None:
    table = arrays()
    obs = pd.DataFrame({name: table[name] for name in ("obs_zone", "obs_level")}).to_numpy()
    assert obs.dtype == object
    given = {"observations": obs, "obs_names": ["obs_zone", "obs_level"], "actions": table["action_valve"][:, None]}
    given |= {"rewards": table["reward"], "terminals": table["terminal"], "name": "plant"}
    found, expected = load_dataset(given), load_dataset(pd.DataFrame(table))
    assert (found.hash, found.obs_names, found.name) == (expected.hash, expected.obs_names, "plant")
    following = np.roll(obs, -1, axis=0)
    assert load_dataset(given | {"next_observations": following}).obs_names == expected.obs_names


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"obs_zone": ["north"] * 3}, "do not have the same rows"),
        ({"obs_zone": [object()] * ROWS}, "'obs_zone' cannot be read as a column"),
        ({"obs_zone": [f"{row}" for row in range(ROWS)]}, "leave it out of the state"),
    ],
)
def test_what_cannot_be_encoded_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_dataset(arrays() | change)


def test_numbers_that_became_texts_are_refused() -> None:
    """NumPy turns all numbers of one array into texts if one is: then each would be a category."""
    table = arrays()
    obs = np.stack([table["obs_zone"], table["obs_level"].astype(str)], axis=1)
    given = {"observations": obs, "actions": table["action_valve"][:, None], "rewards": table["reward"]}
    with pytest.raises(UserError, match="'observations' holds values of type <U"):
        load_dataset(given | {"terminals": table["terminal"]})


def test_a_learner_takes_such_a_dictionary(tmp_path: Path) -> None:
    learner = pspo.OfflinePolicyLearner("bc", preset="smoke", out=tmp_path / "run").fit(arrays())
    assert learner.predict(arrays()).shape == (ROWS, 1)
    assert learner.policy_.observation_names == ("obs_zone", "obs_level")
