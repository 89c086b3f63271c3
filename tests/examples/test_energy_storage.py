"""The example with company-like data: from the raw folder to a policy that is called by name, through the commands."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import pspo
from examples import energy_storage as storage
from pspo.cli.main import main
from tests.refusals import message_of

DAYS = 40  # two months
DESCRIBE = [
    "--obs",
    "timestamp,site,forecast,price_ct,charge_pct,temperature_c",
    "--action",
    "power_kw",
    "--reward",
    "profit_eur",
    "--episode",
    "site,day",
    "--terminal",
    "day_over",
    "--time",
    "timestamp",
    "--propensity",
    "density",
]
OPTIONS = ["--cyclic", "hour_of_day", "--action-low", "-50", "--action-high", "50"]
NAMES = tuple(DESCRIBE[1].split(","))
TINY = ["--preset", "smoke", "--quiet"]


def run(*words: object) -> str:
    """What a command prints; it must succeed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main([*map(str, words)])
    assert code == 0, printed.getvalue()
    return " ".join(printed.getvalue().split())


def write_map(folder: Path) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(["data", "describe", str(folder), *DESCRIBE, *OPTIONS]) == 0
    folder.with_name(f"{folder.name}.toml").write_text(text.getvalue())
    return text.getvalue()


@pytest.fixture(scope="module")
def record() -> pa.Table:
    return storage.record(DAYS)


@pytest.fixture(scope="module")
def trained(record: pa.Table, tmp_path_factory) -> Path:
    """The folder `storage` with its map, a run on it, and policy.onnx. BC, since PSPO takes longer to compile."""
    place = tmp_path_factory.mktemp("energy")
    storage.write_folder(record, place / "storage")
    write_map(place / "storage")
    run("train", place / "storage", "--algo", "bc", "--holdout", 0.2, "--out", place / "run", *TINY)
    run("export", place / "run", place / "policy.onnx")
    return place


def sorted_by(table: pa.Table, *columns: str) -> pa.Table:
    return table.take(pc.call_function("sort_indices", [table], pc.SortOptions([(c, "ascending") for c in columns])))


def rows_of(table: pa.Table, rows: Any) -> dict[str, np.ndarray]:
    """Raw observations by name, as a caller has them."""
    return {name: table[name].take(pa.array(rows)).to_numpy() for name in NAMES}


def test_the_folder_is_that_of_a_company(trained: Path, record: pa.Table) -> None:
    files = sorted(path.relative_to(trained).as_posix() for path in trained.rglob("*.parquet"))
    assert files == [f"storage/month=2025-0{month}/part-0.parquet" for month in (1, 2)]
    assert record.num_rows == DAYS * len(storage.SITES) * len(storage.HOURS)
    assert 0.05 < record["temperature_c"].null_count / record.num_rows < 0.11
    assert not record.equals(sorted_by(record, "timestamp"))
    assert record.equals(storage.record(DAYS))  # seeded


def test_describe_writes_a_map_that_needs_no_correction(trained: Path) -> None:
    text = (trained / "storage.toml").read_text()
    data = pspo.load_dataset(trained / "storage")
    assert "2 files, 2,880 rows" in text
    assert (data.size, len(data.episode_lengths()), int(data.terminal.sum())) == (2880, 160, 160)
    assert data.encoder is not None
    assert data.encoder.raw_names == NAMES
    assert data.action_high.tolist() == [50.0]
    assert data.propensity is not None
    described = " ".join(data.encoder.describe())
    assert "sine and cosine of hour_of_day" in described
    assert "depot, harbour, mill, quarry" in described
    assert "a missing one counts as" in described


def test_the_raw_folder_passes_the_check(trained: Path) -> None:
    assert "transitions 2880" in run("data", "info", trained / "storage")
    assert "0 errors" in run("check", trained / "storage", "--holdout", 0.2)


@pytest.mark.slow
def test_every_command_accepts_a_run_on_the_raw_folder(trained: Path) -> None:
    run("train", trained / "storage", "--holdout", 0.2, "--out", trained / "pspo", *TINY)
    estimates = run("ope", trained / "pspo")
    assert "sum of rewards until the episode ends" in estimates
    assert "importance sampling" in estimates
    assert "is an estimate" not in estimates  # the density is that of the column, which the map names
    assert "rank" in run("select", trained / "run", trained / "pspo")
    state = "site=mill,forecast=sunny,price_ct=4,charge_pct=20,temperature_c=9,timestamp=2025-03-01 12:00"
    assert "power_kw" in run("inspect", trained / "pspo", "--state", state)
    held_out = run("inspect", trained / "pspo", "--row", last_row(trained), "--data", trained / "storage")
    assert "power_kw" in held_out


def last_row(trained: Path) -> int:
    """The row of the files with the last hour, which is held out."""
    rows = pspo.load_dataset(trained / "storage").source_rows
    assert rows is not None
    return int(rows[-1])


def test_a_row_of_the_hold_out_is_not_inspected_by_mistake(trained: Path) -> None:
    """Its number is not that of another row of the part that was trained on."""
    row, printed = last_row(trained), io.StringIO()
    with contextlib.redirect_stderr(printed):
        assert main(["inspect", str(trained / "run"), "--row", str(row), "--quiet"]) == 2
    message = " ".join(printed.getvalue().split())
    assert f"row {row} of 'storage' is in the hold-out" in message
    assert "name the whole data with --data" in message


def test_training_arrays_and_names_give_the_same_actions(trained: Path, record: pa.Table) -> None:
    """In NumPy and in ONNX, for columns in any order."""
    data = pspo.load_dataset(trained / "storage")
    policy, served = pspo.load_policy(trained / "run"), pspo.OnnxPolicy.load(trained / "policy.onnx")
    table = pyarrow.dataset.dataset(trained / "storage").to_table()  # in the order of the files
    rows = np.arange(0, record.num_rows, 7)
    assert data.source_rows is not None
    expected, matched = policy.act_encoded(data.obs[rows]), data.source_rows[rows]
    raw = rows_of(table, matched)
    assert np.ptp(expected) > 0
    for way in (policy, served):
        assert np.allclose(way(raw), expected, atol=1e-3)
        assert np.array_equal(way(raw), way({name: raw[name] for name in reversed(NAMES)}))
        frame = table.take(pa.array(matched)).to_pandas()[[*NAMES[3:], *NAMES[:3]]]
        assert np.array_equal(way(raw), way(frame))
        one = way({name: values[0] for name, values in raw.items()})
        assert np.allclose(one, expected[0], atol=1e-3)


def test_missing_and_unknown_names_are_refused(trained: Path, record: pa.Table) -> None:
    raw = rows_of(record, [0, 1])
    for way in (pspo.load_policy(trained / "run"), pspo.OnnxPolicy.load(trained / "policy.onnx")):
        assert "'price_ct'" in message_of(way, {n: v for n, v in raw.items() if n != "price_ct"})
        assert "'price'" in message_of(way, raw | {"price": raw["price_ct"]})


# Damaged versions of the folder


def damaged(table: pa.Table, folder: Path) -> tuple[Path, str]:
    storage.write_folder(table, folder / "storage")
    write_map(folder / "storage")
    return folder / "storage", run("check", folder / "storage")


def test_rows_in_no_order_are_sorted_with_a_warning(record: pa.Table, tmp_path: Path) -> None:
    _, printed = damaged(record, tmp_path)
    assert "rows were sorted by 'timestamp' within episodes" in printed
    assert "of 'month=2025-01/part-0.parquet'" in printed
    _, printed = damaged(sorted_by(record, "day", "site", "timestamp"), tmp_path / "sorted")
    assert "rows were sorted" not in printed


def test_without_the_time_the_wrong_order_is_refused(record: pa.Table, tmp_path: Path) -> None:
    folder, _ = damaged(record, tmp_path)
    text = folder.with_name("storage.toml").read_text()
    folder.with_name("storage.toml").write_text(text.replace('\ntime = "timestamp"', ""))
    message = message_of(pspo.load_dataset, folder)
    assert "of 'month=2025-01/part-0.parquet' returns to episode" in message
    assert "of column 'site, day'" in message
    assert "name the column of the time with --time" in message


def test_rows_shuffled_within_episodes_are_noticed_without_the_time(record: pa.Table, tmp_path: Path) -> None:
    folder, _ = damaged(
        sorted_by(record, "day", "site"), tmp_path
    )  # hours of a day and site stay in their random order
    text = folder.with_name("storage.toml").read_text()
    folder.with_name("storage.toml").write_text(text.replace('\ntime = "timestamp"', ""))
    printed = run("check", folder)
    assert "--time" in printed
    assert "order" in printed


def test_rows_written_twice_are_left_out_and_named(record: pa.Table, trained: Path, tmp_path: Path) -> None:
    folder, printed = damaged(pa.concat_tables([record, record]), tmp_path)
    assert "the data seem to be written twice: row" in printed
    assert "with the same episode, 'timestamp'" in printed
    assert "copies in all: 2880" in printed
    assert pspo.load_dataset(folder).size == pspo.load_dataset(trained / "storage").size


def test_different_rows_at_one_time_are_refused(record: pa.Table, tmp_path: Path) -> None:
    again = record.slice(0, 200)
    other = again.set_column(
        again.column_names.index("price_ct"), "price_ct", pc.call_function("add", [again["price_ct"], 1.0])
    )
    storage.write_folder(pa.concat_tables([record, other]), tmp_path / "storage")
    write_map(tmp_path / "storage")
    message = message_of(pspo.load_dataset, tmp_path / "storage")
    assert "have the same 'timestamp'" in message
    assert "row" in message


def test_missing_hours_are_named_and_cut_the_episode(record: pa.Table, tmp_path: Path) -> None:
    gap = np.datetime64("2025-01-17T11:00:00")
    lost = np.isin(record["timestamp"].to_numpy(), gap) & (record["site"].to_numpy(zero_copy_only=False) == "mill")
    assert lost.sum() == 1
    folder, printed = damaged(record.filter(pa.array(~lost)), tmp_path)
    assert "rows are missing: 'timestamp' goes from 2025-01-17T10:00:00" in printed
    assert "to 2025-01-17T12:00:00" in printed
    assert "gaps in all: 1" in printed
    data = pspo.load_dataset(folder)
    assert len(data.episode_lengths()) == 161
    assert int(data.timeout.sum()) == 1


# The true system


def test_the_logged_density_is_that_of_the_noise() -> None:
    """It integrates to 1, and is how often the rule with noise chooses each power."""
    dates, site = storage.all_days(25)
    state = storage.first_state(dates, site, np.random.default_rng(0))
    state.deviation[:] = np.where(np.arange(len(site)) % 2, 6.0, -1.0)
    state.forecast[:] = 0
    powers = storage.rule_with_noise(state, np.random.default_rng(1))
    assert np.abs(powers).max() <= storage.MAX_POWER
    edges = np.linspace(-storage.MAX_POWER, storage.MAX_POWER, 11)
    middles = (edges[1:] + edges[:-1]) / 2
    for part in (0, 1):
        shares = np.histogram(powers[part::2], edges)[0] / len(powers[part::2])
        one = state.take(np.array([part]))
        fine = np.linspace(-50, 50, 2001)
        assert np.trapezoid([storage.density(one, p)[0] for p in fine], fine) == pytest.approx(1.0, abs=1e-6)
        likely = np.array([storage.density(one, middle)[0] for middle in middles]) * np.diff(edges)
        assert np.abs(shares - likely).max() < 0.01


def test_energy_is_conserved_up_to_losses() -> None:
    random = np.random.default_rng(0)
    site, temperature = random.integers(0, 4, 1000), random.uniform(-10, 30, 1000)
    stored = random.uniform(0, 1, 1000) * storage.CAPACITY[site]
    profit, after = storage.step(12, random.uniform(-50, 50, 1000), np.full(1000, 10.0), stored, site, temperature)
    assert (after >= 0).all()
    assert (after <= storage.CAPACITY[site]).all()
    bought = -(profit * 100) / 10.0  # kWh, with wear on top
    gained = after / (1 - storage.LEAK) - stored
    assert (gained <= bought + 1e-9).all()


@pytest.mark.slow
def test_the_optimum_is_worth_what_its_grid_says() -> None:
    """Dynamic programming and simulation agree to a part in a hundred, and no rule without noise is better."""
    dates, site = storage.all_days(5)
    steps = storage.simulate(storage.optimum, dates, site, 7)
    first, future = steps[0][0], storage.future_values()
    predicted = np.zeros(len(site))
    for s in range(len(storage.SITES)):
        for f in range(len(storage.FORECASTS)):
            rows = (first.site == s) & (first.forecast == f)
            predicted[rows] = storage.best(first.take(rows), future[5, s, f])[1]
    returns = np.sum([profit for _, _, profit in steps], axis=0)
    assert returns.mean() == pytest.approx(predicted.mean(), rel=0.01)
    assert storage.mean_return(lambda state, _: storage.rule(state)) < 0.8 * returns.mean()


@pytest.mark.slow
def test_the_default_policy_closes_most_of_the_gap(tmp_path: Path) -> None:
    storage.write_folder(storage.record(), tmp_path / "storage")
    write_map(tmp_path / "storage")
    run("train", tmp_path / "storage", "--holdout", 0.2, "--out", tmp_path / "run", "--quiet")
    low, high = storage.mean_return(storage.rule_with_noise), storage.mean_return(storage.optimum)
    truth = storage.mean_return(storage.by_name(pspo.load_policy(tmp_path / "run")))
    assert (truth - low) / (high - low) > 0.8
