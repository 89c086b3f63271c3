"""A hold-out: the latest or random episodes, apart from the rest, the same for the same data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.data import Dataset, check_source, load_dataset, save_dataset
from pspo.data.holdout import Holdout, hold_out
from tests.data.made_up_data import clean_fields, datasets


def episodes(count: int = 40, steps: int = 6) -> Dataset:
    return Dataset(**clean_fields(count * steps), propensity=np.arange(1, count * steps + 1), source_rows=None)


@pytest.mark.parametrize("by", ["time", "episode"])
def test_both_parts_are_whole_episodes_and_together_everything(by: str) -> None:
    dataset = episodes()
    training, held_out = Holdout(0.25, by).split(dataset)
    assert (training.size, held_out.size) == (180, 60)
    assert training.source_rows is not None
    assert held_out.source_rows is not None
    rows = np.concatenate([training.source_rows, held_out.source_rows])
    assert sorted(rows.tolist()) == list(range(240))
    for part in (training, held_out):
        assert part.source_rows is not None
        assert part.propensity is not None
        np.testing.assert_array_equal(part.obs, dataset.obs[part.source_rows])
        np.testing.assert_array_equal(part.propensity, part.source_rows + 1)
        assert (part.episode_lengths() == 6).all()
    assert (held_out.source_rows.min() == 180) == (by == "time")
    assert Holdout(0.25, by).split(dataset)[1].hash == held_out.hash


@given(datasets(gaps=True), st.floats(0.1, 0.9), st.sampled_from(["time", "episode"]))
def test_no_transition_is_lost_or_changed(dataset: Dataset, fraction: float, by: str) -> None:
    try:
        training, held_out = Holdout(fraction, by).split(dataset)
    except UserError:
        return  # too small, or one episode
    assert training.size + held_out.size == dataset.size
    assert training.terminal.sum() + held_out.terminal.sum() == dataset.terminal.sum()


def test_one_long_episode_is_cut_by_time() -> None:
    fields = clean_fields(60)
    fields["terminal"][:] = fields["timeout"][:] = False
    training, held_out = Holdout(0.2, "time").split(Dataset(**fields))
    assert (training.size, held_out.size) == (48, 12)
    assert training.timeout[-1]
    with pytest.raises(UserError, match="use --holdout-by time"):
        Holdout(0.2, "episode").split(Dataset(**fields))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_impossible_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="give a number between 0 and 1"):
        Holdout(fraction)


def test_check_compares_the_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = clean_fields(600)
    path = save_dataset(Dataset(**fields), tmp_path / "log.npz")
    assert main(["check", str(path), "--holdout", "0.2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "warning: held out: 120 of 600 transitions, which are 20 of 100 episodes at random."
    assert len(said) == 2
    fields["obs"][:, 1] = np.arange(600)
    path = save_dataset(Dataset(**fields), tmp_path / "rising.npz")
    _, findings = check_source(path, holdout=0.1, holdout_by="time")
    assert any("obs column 1 is outside the training part's range (0 to 539) in 100%" in f.message for f in findings)
    _, findings = check_source(path, holdout=0.01)
    assert any("only 1 episodes are held out" in finding.message for finding in findings)
    assert main(["check", str(path), "--holdout", "2"]) == 2


@pytest.mark.parametrize(("shift", "said"), [(0.0, False), (3.0, True), (-3.0, True)])
def test_a_hold_out_that_returns_more_or_less_than_the_rest_is_named(shift: float, said: bool, tmp_path: Path) -> None:
    """Of 100 episodes with six rewards each, the last 20; one standard error is 0.6."""
    fields = clean_fields(600)
    fields["reward"] = np.random.default_rng(0).normal(size=600)
    fields["reward"][480:] += shift / 6.0
    dataset = Dataset(**fields)
    path = save_dataset(dataset, tmp_path / "log.npz")
    _, findings = check_source(path, holdout=0.2, holdout_by="time")
    found = [finding.message for finding in findings if finding.code == "holdout-returns"]
    assert bool(found) == said
    if said:
        held_out, others = np.split(dataset.episode_returns(), [80])[::-1]
        assert f"return {held_out.mean():.4g} on average and the others {others.mean():.4g}, which chance" in found[0]


@pytest.mark.parametrize("seed", range(3))
def test_random_hold_outs_are_rarely_named(seed: int) -> None:
    random, named = np.random.default_rng(seed), 0
    for _ in range(100):
        fields = clean_fields(600)
        fields["reward"] = random.exponential(size=600)
        named += Holdout(0.2, "time").difference(Dataset(**fields)) is not None
    assert named <= 5


def test_parts_of_episodes_are_not_compared() -> None:
    fields = clean_fields(60)
    fields["reward"] = np.arange(60.0)
    assert Holdout(0.2, "time").difference(Dataset(**fields)) is None  # too few
    log = stores(count=40)
    log["profit"] = np.arange(4000) % 100 / 1.0
    dataset = load_dataset(pa.table(log), columns=COLUMNS)
    _, _, way = hold_out(dataset, 0.2)
    assert way is not None
    assert way.difference(dataset) is None  # all episodes are cut at one time


# By time, where episodes overlap


def stores(count: int = 10, days: int = 100, numbers: bool = False) -> dict[str, np.ndarray]:
    """Rows of several stores that are open on the same days; the state is the day."""
    day = np.tile(np.arange(days), count)
    random = np.random.default_rng(0)
    return {
        "store": np.repeat(np.arange(count), days),
        "date": day if numbers else (np.datetime64("2024-01-01") + day).astype("datetime64[D]"),
        "x": day.astype(float),
        "u": random.uniform(-1, 1, count * days),
        "profit": random.normal(size=count * days),
    }


COLUMNS = {"obs": "x", "action": "u", "reward": "profit", "episode": "store", "time": "date"}


@pytest.mark.parametrize("kind", ["memory", "arrays", "csv"])
def test_episodes_that_overlap_are_cut_at_one_time(kind: str, tmp_path: Path) -> None:
    table = stores()
    order = np.random.default_rng(1).permutation(1000)
    table = {name: column[order] for name, column in table.items()}
    if kind == "memory":
        dataset = load_dataset(pa.table(table), columns=COLUMNS)
    elif kind == "arrays":
        dataset = load_dataset({**table, "x": table["x"][:, None]}, columns=COLUMNS)
    else:
        pyarrow.csv.write_csv(pa.table(table), tmp_path / "log.csv")
        dataset = load_dataset(tmp_path / "log.csv", columns=COLUMNS)
    training, held_out, way = hold_out(dataset, 0.2)
    assert held_out is not None
    assert way is not None
    assert (training.size, held_out.size) == (790, 200)  # nothing follows the last day of a store
    assert training.obs.max() == 78
    assert held_out.obs.min() == 79
    assert len(training.episode_starts) == len(held_out.episode_starts) == 10
    cut = training.obs[:, 0] == 78
    assert training.timeout[cut].all()
    assert not training.terminal.any()
    assert (training.next_obs[cut] == 79).all()  # values bootstrap from there
    again = Holdout(**json.loads(json.dumps(way.as_dict()))).split(dataset)
    assert [part.hash for part in again] == [training.hash, held_out.hash]
    said = "held out: the latest 200 of 990 transitions (from 'date' 2024-03-20 on); 10 episodes are cut there."
    assert way.describe(dataset) == said


def test_a_terminal_stays_one_where_episodes_are_cut() -> None:
    table = stores(2, 10) | {"over": np.arange(20) % 10 == 6}
    dataset = load_dataset(pa.table(table), columns=COLUMNS | {"terminal": "over"})
    training, held_out, way = hold_out(dataset, 0.2)
    assert held_out is not None
    assert way is not None
    assert (training.obs.max(), held_out.obs.min()) == (6, 7)
    assert training.terminal.sum() == 2
    assert not (training.terminal & training.timeout).any()
    assert "cut there" not in way.describe(dataset)


def test_numbers_that_begin_again_in_every_episode_need_an_answer() -> None:
    """They may be days that all stores share, or steps since the start: then cutting would hide all late steps."""
    dataset = load_dataset(pa.table(stores(numbers=True)), columns=COLUMNS)
    with pytest.raises(UserError, match=r"'date' begins at 0 in 10 of 10 episodes.*--holdout-by time.*--holdout-by"):
        hold_out(dataset, 0.2)
    _, held_out, way = hold_out(dataset, 0.2, "time")
    assert held_out is not None
    assert held_out.obs.min() == 79
    assert way == Holdout(0.2, "time", 79)
    assert hold_out(dataset, 0.2, "episode")[2] == Holdout(0.2, "episode")


def test_episodes_that_follow_each_other_stay_whole() -> None:
    table = stores()
    table["date"] = (np.datetime64("2024-01-01") + np.arange(1000)).astype("datetime64[D]")
    dataset = load_dataset(pa.table(table), columns=COLUMNS)
    _, held_out, way = hold_out(dataset, 0.2)
    assert way == Holdout(0.2, "time")
    assert held_out is not None
    assert held_out.episode_lengths().tolist() == [99, 99]
    assert way is not None
    assert way.describe(dataset) == "held out: the latest 198 of 990 transitions (from 'date' 2026-03-11 on)."


def test_a_run_of_an_earlier_version_finds_its_split() -> None:
    """It held out whole episodes, also where they overlap."""
    dataset = load_dataset(pa.table(stores()), columns=COLUMNS)
    _, held_out = Holdout(fraction=0.2, by="time").split(dataset)
    assert held_out.episode_lengths().tolist() == [99, 99]


def test_a_time_that_the_data_lack_is_named() -> None:
    without = {role: name for role, name in COLUMNS.items() if role != "time"}
    with pytest.raises(UserError, match="without the column of the time"):
        Holdout(0.2, "time", "2024-03-20").split(load_dataset(pa.table(stores()), columns=without))


def test_a_held_out_row_is_named_as_such() -> None:
    dataset = load_dataset(pa.table(stores()), columns=COLUMNS)
    training, held_out, _ = hold_out(dataset, 0.2)
    assert held_out is not None
    for row in (80, 998):  # of the first store, and after the last row of the training part
        with pytest.raises(UserError, match=f"row {row} of 'dataset' is in the hold-out"):
            training.index_of_row(row)
        assert held_out.row_name(held_out.index_of_row(row)) == f"row {row}"
    with pytest.raises(UserError, match="row 99 of 'dataset' was left out when it was read"):
        training.index_of_row(99)


def test_check_and_train_say_what_is_held_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyarrow.csv.write_csv(pa.table(stores()), tmp_path / "log.csv")
    roles = [word for role, name in COLUMNS.items() for word in (f"--{role}", name)]
    assert main(["check", str(tmp_path / "log.csv"), *roles, "--holdout", "0.2"]) == 0
    assert "held out: the latest 200 of 990 transitions (from 'date' 2024-03-20 on); 10" in capsys.readouterr().out
