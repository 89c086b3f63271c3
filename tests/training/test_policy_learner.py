"""`fit` and `predict` with scikit-learn's habits, on everything that holds a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pspo
from pspo import OfflinePolicyLearner, UserError
from pspo.training import train as training

ROWS, EPISODE = 120, 6


def log_frame() -> pd.DataFrame:
    """A log as a data frame, with a column that is not used."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"episode": np.arange(ROWS) // EPISODE, "obs_level": rng.normal(size=ROWS)})
    frame["obs_flow"] = rng.normal(size=ROWS)
    frame["action_valve"] = rng.uniform(-1.0, 1.0, ROWS)
    frame["reward"] = frame["obs_level"] * frame["action_valve"]
    frame["terminal"] = np.arange(ROWS) % EPISODE == EPISODE - 1
    return frame


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> OfflinePolicyLearner:
    out = tmp_path_factory.mktemp("learner") / "run"
    learner = OfflinePolicyLearner("bc", preset="smoke", out=out)
    assert learner.fit(log_frame()) is learner
    return learner


@pytest.fixture
def trained_on(monkeypatch) -> list[dict[str, Any]]:
    """What `train` is called with; it trains nothing."""
    calls: list[dict[str, Any]] = []

    def note(dataset: Any, algo: str, **options: Any) -> Any:
        calls.append({"data": pspo.load_dataset(dataset, options["columns"], options["task"]), "algo": algo, **options})
        raise UserError("nothing is trained here")

    monkeypatch.setattr(training, "train", note)
    return calls


def fit_nothing(*data: Any, **arrays: Any) -> None:
    with pytest.raises(UserError, match="nothing is trained here"):
        OfflinePolicyLearner(seed=7).fit(*data, **arrays)


def test_a_frame_goes_in_and_an_action_for_every_row_comes_out(fitted: OfflinePolicyLearner) -> None:
    frame = log_frame()
    action = fitted.predict(frame)
    assert action.shape == (ROWS, 1)
    assert np.ptp(action) > 0
    by_hand = fitted.policy_(frame[["obs_level", "obs_flow"]].to_numpy())
    np.testing.assert_array_equal(action, by_hand)
    assert fitted.feature_names_in_.tolist() == ["obs_level", "obs_flow"]
    assert fitted.n_features_in_ == 2
    assert (fitted.run_.path / "report.html").exists()


def test_prediction_goes_by_name_whatever_holds_the_columns(fitted: OfflinePolicyLearner) -> None:
    import pyarrow as pa

    frame = log_frame()
    expected = fitted.predict(frame)
    obs = frame[["obs_level", "obs_flow"]].to_numpy()
    reversed_columns = frame[[*frame.columns[::-1]]]
    tables = [
        reversed_columns,
        pa.Table.from_pandas(reversed_columns),
        reversed_columns.to_dict("list"),
        reversed_columns.to_dict("records"),
        frame.to_records(),
        {"observations": obs, "rewards": frame["reward"].to_numpy()},
        pspo.load_dataset(frame),
        obs,
    ]
    for table in tables:
        np.testing.assert_allclose(fitted.predict(table), expected, atol=1e-6)
    np.testing.assert_allclose(fitted.predict({"obs_flow": obs[0, 1], "obs_level": obs[0, 0]}), expected[0], atol=1e-6)


def test_a_dataset_goes_by_name_and_needs_the_same_encoder(fitted: OfflinePolicyLearner) -> None:
    frame = log_frame()
    expected = fitted.predict(frame)
    swapped = pspo.load_dataset(frame, {"obs": ["obs_flow", "obs_level"]})
    assert swapped.obs_names == ("obs_flow", "obs_level")
    np.testing.assert_allclose(fitted.predict(swapped), expected, atol=1e-6)
    narrow = pspo.load_dataset(frame, {"obs": ["obs_flow"]})
    with pytest.raises(UserError, match="lacks 'obs_level'"):
        fitted.predict(narrow)
    texts = pspo.load_dataset(frame.assign(obs_flow=np.where(frame["obs_flow"] > 0, "up", "down")))
    with pytest.raises(UserError, match="was not encoded as the data of the run"):
        fitted.predict(texts)


def test_discrete_actions_are_labels_whatever_holds_the_observations(tmp_path: Path) -> None:
    frame = log_frame()
    frame["action_valve"] = np.where(frame["obs_level"] > 0, "open", np.where(frame["obs_flow"] > 0, "ajar", "shut"))
    frame["obs_zone"] = np.where(np.arange(ROWS) % 2, "north", "south")  # has an encoder
    settings = {"steps": 500, "chunk": 250}
    learner = OfflinePolicyLearner("bc", preset="smoke", out=tmp_path / "run", settings=settings).fit(frame)
    labels = learner.predict(frame)
    assert labels.shape == (ROWS,)
    assert (labels == frame["action_valve"]).mean() > 0.7
    for data in (pspo.load_dataset(frame), frame[["obs_zone", "obs_flow", "obs_level"]].to_dict("list")):
        assert learner.predict(data).tolist() == labels.tolist()


def test_the_hold_out_is_kept_apart(tmp_path: Path) -> None:
    learner = OfflinePolicyLearner("bc", preset="smoke", out=tmp_path / "run", holdout=0.25, holdout_by="time")
    learner.fit(log_frame())
    assert learner.run_.holdout is not None
    assert learner.run_.holdout.as_dict() == {"fraction": 0.25, "by": "time"}
    assert learner.get_params()["holdout_by"] == "time"


def test_a_missing_column_and_a_learner_without_policy_are_refused(fitted: OfflinePolicyLearner) -> None:
    with pytest.raises(UserError, match="lacks 'obs_flow'"):
        fitted.predict(log_frame().drop(columns="obs_flow"))
    with pytest.raises(UserError, match="call fit first"):
        OfflinePolicyLearner().predict([0.0, 0.0])


def test_the_same_data_in_any_form_is_the_same_dataset(trained_on: list[dict[str, Any]]) -> None:
    frame = log_frame()
    frame = frame.assign(episode=0, terminal=False, timeout=np.arange(ROWS) % EPISODE == EPISODE - 1)
    data = pspo.load_dataset(frame.drop(columns="episode"))
    obs, actions = frame[["obs_level", "obs_flow"]], frame[["action_valve"]]
    arrays = {"rewards": frame["reward"], "terminals": frame["terminal"], "timeouts": frame["timeout"]}
    fit_nothing(data)
    fit_nothing(frame.drop(columns="episode"))
    fit_nothing(frame.drop(columns="episode").to_dict("list"))
    fit_nothing(frame.drop(columns="episode").to_records(index=False))
    fit_nothing(obs, actions, **arrays)
    fit_nothing(obs.to_numpy(), actions.to_numpy()[:, 0], **arrays)
    assert {call["data"].hash for call in trained_on} == {data.hash}
    assert [call["data"].obs_names for call in trained_on] == [data.obs_names] * 5 + [()]
    assert trained_on[4]["data"].action_names == ("action_valve",)
    assert all((call["algo"], call["seed"], call["preset"]) == ("pspo", 7, "laptop") for call in trained_on)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"y": np.zeros(4)}, "rewards and terminals missing"),
        ({"rewards": np.zeros(4), "terminals": np.zeros(4)}, "y missing"),
        ({"y": np.zeros(4), "reward": np.zeros(4)}, "unknown array 'reward': did you mean 'rewards'?"),
    ],
)
def test_incomplete_arrays_are_refused(arrays: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as refused:
        OfflinePolicyLearner().fit(np.zeros((4, 2)), **arrays)
    assert problem in str(refused.value)


def test_parameters_are_read_and_changed_by_name(tmp_path: Path) -> None:
    learner = OfflinePolicyLearner("iql", settings={"steps": 20}, out=tmp_path)
    again = OfflinePolicyLearner(**learner.get_params())
    assert again.get_params() == learner.get_params()
    assert again.settings is learner.settings  # scikit-learn's copies require it
    assert learner.set_params(algo="bc", seed=3) is learner
    assert (learner.get_params()["algo"], learner.seed) == ("bc", 3)
    with pytest.raises(UserError, match="unknown parameter 'sed': did you mean 'seed'"):
        learner.set_params(sed=4, algo="cql")
    assert learner.algo == "bc"
    assert repr(OfflinePolicyLearner("bc", seed=1)) == "OfflinePolicyLearner(algo='bc', seed=1)"


def test_the_public_names_are_listed() -> None:
    assert set(pspo.__all__) == set(dir(pspo))
    assert all(getattr(pspo, name) is not None for name in dir(pspo))
    assert "OfflinePolicyLearner" in dir(pspo)
