"""Masked arrays, as readers of netCDF and HDF5 files give them: what is behind the mask is never used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.core.masked_arrays import without_mask
from pspo.data import Dataset, check, load_dataset
from pspo.data.encoder import EncodedColumn
from pspo.data.raw_values import raw_values
from pspo.training.policy_learner import OfflinePolicyLearner
from tests.data.made_up_data import clean_d4rl, clean_fields

BEHIND = 1e20


def masked(array: np.ndarray) -> Any:
    """The first row is hidden."""
    hidden = np.zeros(array.shape, bool)
    hidden[0] = True
    return np.ma.masked_array(np.where(hidden, BEHIND, array), hidden)


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
def test_a_masked_value_is_a_missing_one(name: str) -> None:
    arrays: dict[str, Any] = clean_d4rl()
    arrays[name] = masked(arrays[name])
    (message, *_) = (finding.message for finding in check(load_dataset(arrays)) if finding.code == "not-finite")
    assert " is nan at row 0" in message


@pytest.mark.parametrize("field", ["obs", "next_obs", "action", "reward"])
@pytest.mark.parametrize("options", [{}, {"encoder": None}])
def test_the_constructor_sees_the_mask(field: str, options: dict[str, Any]) -> None:
    fields: dict[str, Any] = clean_fields()
    fields[field] = masked(fields[field])
    assert np.isnan(getattr(Dataset(**fields, **options), field)[0]).all()


def test_masked_ends_are_refused() -> None:
    arrays: dict[str, Any] = clean_d4rl()
    arrays["terminals"] = masked(arrays["terminals"])
    with pytest.raises(UserError, match="array 'terminals' holds nan at row 0"):
        load_dataset(arrays)


def test_a_table_as_a_dictionary_sees_the_mask() -> None:
    arrays = clean_d4rl()
    table: dict[str, Any] = {"obs_a": masked(arrays["observations"][:, 0]), "action": arrays["actions"][:, 0]}
    table |= {"reward": arrays["rewards"], "terminal": arrays["terminals"]}
    assert np.isnan(load_dataset(table, columns={"obs": "obs_a"}).obs[0]).all()


def test_fit_sees_the_mask() -> None:
    arrays = clean_d4rl()
    ends = {name: arrays[name] for name in ("rewards", "terminals")}
    with pytest.raises(UserError, match="obs is nan at row 0"):
        OfflinePolicyLearner("bc", preset="smoke").fit(masked(arrays["observations"]), arrays["actions"], **ends)


def test_a_masked_category_is_missing() -> None:
    texts = np.ma.masked_array(["a", "b"], [True, False])
    column = EncodedColumn("kind", "category", categories=("a", "b", ""))
    assert raw_values(column, texts, "kind").tolist() == ["", "b"]


def test_what_nothing_hides_stays_as_it_is() -> None:
    numbers = np.arange(3)
    assert without_mask(numbers) is numbers
    assert without_mask(np.ma.masked_array(numbers)).dtype == numbers.dtype


def test_something_else_is_no_encoder() -> None:
    with pytest.raises(UserError, match="the encoder is a str"):
        Dataset(**clean_fields(), encoder="none")  # pyright: ignore[reportArgumentType]


def test_masked_times_stay_times() -> None:
    """As objects, times in nanoseconds would be plain whole numbers."""
    times = np.array(["2026-01-01T00:00", "2026-01-02T00:00"], "datetime64[ns]")
    shown = without_mask(np.ma.array(times, mask=[False, True]))
    assert shown.dtype == times.dtype
    assert shown[0] == times[0]
    assert np.isnat(shown[1])
