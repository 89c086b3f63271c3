"""Battery storage at four sites: writes a year's record as a company keeps it, and knows the truth about a policy.

A battery buys and sells power every hour from 5:00 to 22:00; at 23:00 the site's vans are charged, and each kWh left is
credited. Prices depend on the hour and on the day's weather forecast, and revert to their mean. A rule with a lot of
noise has set the power so far. `pip install 'pspo[tables]'`, then

    python examples/energy_storage.py storage             # a folder of Parquet files, one per month
    python examples/energy_storage.py --evaluate RUN      # the policy's true return, between the rule's and the optimum

docs/own-data.md follows it from the folder to a policy that is served.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HOURS = np.arange(5, 23)
SITES = {"depot": (100.0, 0.96), "harbour": (220.0, 0.95), "mill": (140.0, 0.93), "quarry": (180.0, 0.95)}
CAPACITY, EFFICIENCY = (np.array(column) for column in zip(*SITES.values(), strict=True))  # kWh, one way at 15 °C
FORECASTS = ("overcast", "sunny", "windy")
FORECAST_SHARES = (0.4, 0.35, 0.25)
MAX_POWER, WEAR, CREDIT, LEAK = 50.0, 1.0, 8.0, 0.003  # kW; ct per kWh moved; ct per kWh left; per hour
REVERSION, PRICE_NOISE, TEMPERATURE_NOISE = 0.8, 1.5, 0.5  # ct per kWh; °C
NOISE, UNIFORM = 20.0, 0.1  # of the rule: standard deviation in kW, and how often it tries any power
MISSING = 0.08  # of the temperatures
FIRST_DAY, DAYS = np.datetime64("2025-01-01"), 365

Act = Callable[["State", np.random.Generator], np.ndarray]  # the power in kW, positive to charge


# The true system. Everything is an array with one value for each simulated day of a site.


@dataclass
class State:
    date: np.ndarray
    hour: int
    site: np.ndarray  # index into SITES
    forecast: np.ndarray  # index into FORECASTS
    deviation: np.ndarray  # of the price from its usual value, ct per kWh
    stored: np.ndarray  # kWh
    temperature: np.ndarray

    @property
    def price(self) -> np.ndarray:
        return usual_price(self.hour)[self.forecast] + self.deviation

    def take(self, rows: np.ndarray) -> State:
        return replace(self, **{name: values[rows] for name, values in vars(self).items() if name != "hour"})


def usual_price(hour: int) -> np.ndarray:
    """ct per kWh at an hour, for each forecast: peaks in the morning and the evening, a dip when the sun shines."""
    bump = lambda at, width: np.exp(-(((hour - at) / width) ** 2))  # noqa: E731
    peaks, sun = 4.0 * bump(8, 2.0) + 8.0 * bump(19, 2.0), bump(13, 3.0)
    return 10.0 + np.array([1.0, 1.0, 0.6]) * peaks - np.array([1.0, 7.0, 2.0]) * sun - np.array([0.0, 0.0, 2.0])


def efficiency(site: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    return EFFICIENCY[site] - 0.003 * np.maximum(15.0 - temperature, 0.0)


def warming(hour: int) -> float:
    """Mean change of the temperature within the next hour."""
    return float(5.0 * (np.cos(2 * np.pi * (hour - 14) / 24) - np.cos(2 * np.pi * (hour - 15) / 24)))


def step(
    hour: int, power: np.ndarray, price: np.ndarray, stored: np.ndarray, site: np.ndarray, temperature: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Profit in euros and kWh stored after an hour; a battery stops when it is full or empty."""
    one_way, capacity = efficiency(site, temperature), CAPACITY[site]
    moved = np.clip(power, -stored * one_way, (capacity - stored) / one_way)
    after = np.where(moved > 0, stored + moved * one_way, stored + moved / one_way)
    after = np.clip(after, 0.0, capacity) * (1.0 - LEAK)
    profit = -(price * moved + WEAR * np.abs(moved))
    return (profit + CREDIT * after * (hour == HOURS[-1])) / 100.0, after


def first_state(dates: np.ndarray, site: np.ndarray, random: np.random.Generator) -> State:
    day = (dates - dates.astype("datetime64[Y]")).astype(int)
    season = 10.0 - 10.0 * np.cos(2 * np.pi * (day - 15) / 365)
    forecast = random.choice(len(FORECASTS), size=len(dates), p=FORECAST_SHARES)
    deviation = random.normal(0.0, PRICE_NOISE / np.sqrt(1.0 - REVERSION**2), len(dates))
    stored = random.uniform(0.1, 0.6, len(dates)) * CAPACITY[site]
    temperature = season - 3.0 + random.normal(0.0, 3.0, len(dates))
    return State(dates, int(HOURS[0]), site, forecast, deviation, stored, temperature)


def simulate(act: Act, dates: np.ndarray, site: np.ndarray, seed: int) -> list[tuple[State, np.ndarray, np.ndarray]]:
    """(state, power, profit) for each hour of all days. The weather and prices of a seed do not depend on `act`."""
    nature, choices = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    state, steps = first_state(dates, site, nature), []
    for hour in HOURS:
        power = np.clip(act(state, choices), -MAX_POWER, MAX_POWER)
        profit, stored = step(int(hour), power, state.price, state.stored, site, state.temperature)
        steps.append((state, power, profit))
        deviation = REVERSION * state.deviation + nature.normal(0.0, PRICE_NOISE, len(dates))
        temperature = state.temperature + warming(int(hour)) + nature.normal(0.0, TEMPERATURE_NOISE, len(dates))
        state = State(dates, int(hour) + 1, site, state.forecast, deviation, stored, temperature)
    return steps


def all_days(repeats: int = 1, dates: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Every date at every site: dates, and sites by index."""
    dates = FIRST_DAY + np.arange(DAYS) if dates is None else dates
    return np.tile(np.repeat(dates, len(SITES)), repeats), np.tile(np.arange(len(SITES)), len(dates) * repeats)


# The rule that made the data


def rule(state: State) -> np.ndarray:
    """Charge below 9 ct and discharge above 12 ct, the more the farther."""
    cheap, dear = np.maximum(9.0 - state.price, 0.0), np.maximum(state.price - 12.0, 0.0)
    return np.clip(8.0 * cheap - 8.0 * dear, -40.0, 40.0)


def rule_with_noise(state: State, random: np.random.Generator) -> np.ndarray:
    """A normal distribution within the limits around the rule, by rejection; sometimes any power."""
    power = mean = rule(state)
    outside = np.ones(len(mean), bool)
    while outside.any():
        power = np.where(outside, random.normal(mean, NOISE), power)
        outside = np.abs(power) > MAX_POWER
    anything = random.uniform(-MAX_POWER, MAX_POWER, len(mean))
    return np.where(random.random(len(mean)) < UNIFORM, anything, power)


def density(state: State, power: np.ndarray) -> np.ndarray:
    """Of `rule_with_noise`, per kW."""
    from scipy.special import ndtr

    mean = rule(state)
    normal = np.exp(-0.5 * ((power - mean) / NOISE) ** 2) / (NOISE * np.sqrt(2.0 * np.pi))
    inside = ndtr((MAX_POWER - mean) / NOISE) - ndtr((-MAX_POWER - mean) / NOISE)
    return UNIFORM / (2.0 * MAX_POWER) + (1.0 - UNIFORM) * normal / inside


# The record, as a company keeps it


def seen(state: State, random: np.random.Generator) -> dict[str, np.ndarray]:
    """What is measured: the columns of a policy's observation. Some temperatures are missing."""
    missing = random.random(len(state.site)) < MISSING
    return {
        "timestamp": state.date.astype("datetime64[s]") + np.timedelta64(state.hour, "h"),
        "site": np.array(list(SITES))[state.site],
        "forecast": np.array(FORECASTS)[state.forecast],
        "price_ct": np.round(state.price, 2),
        "charge_pct": np.round(100.0 * state.stored / CAPACITY[state.site], 2),
        "temperature_c": np.where(missing, np.nan, np.round(state.temperature, 1)),
    }


def record(days: int = DAYS, seed: int = 0, first_day: np.datetime64 = FIRST_DAY) -> Any:
    """The year as an Arrow table, a row per site and hour, in no order."""
    import pyarrow as pa

    dates, site = all_days(dates=first_day + np.arange(days))
    random = np.random.default_rng([seed, 2])
    parts = []
    for state, power, profit in simulate(rule_with_noise, dates, site, seed):
        others = {"power_kw": power, "profit_eur": np.round(profit, 4), "density": density(state, power)}
        ends = {"day": dates, "day_over": np.full(len(dates), state.hour == HOURS[-1])}
        parts.append(seen(state, random) | others | ends)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = random.permutation(len(columns["day"]))
    return pa.table({name: pa.array(values[order], from_pandas=True) for name, values in columns.items()})


def write_folder(table: Any, folder: Path) -> None:
    """month=2025-01/part-0.parquet and so on; rows stay in their order."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    months = table["day"].to_numpy().astype("datetime64[M]")
    for month in np.unique(months):
        part = folder / f"month={month}" / "part-0.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table.filter(pa.array(months == month)), part)


# What policies truly earn


def mean_return(act: Act, repeats: int = 5, dates: np.ndarray | None = None, seed: int = 1000) -> float:
    """Euros per day and site over the days of the year (or those given), each simulated `repeats` times."""
    steps = simulate(act, *all_days(repeats, dates), seed)
    return float(np.mean(np.sum([profit for _, _, profit in steps], axis=0)))


def by_name(policy: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> Act:
    """A pspo policy (of a run or from ONNX), which sees what is measured."""
    return lambda state, random: np.asarray(policy(seen(state, random)))[:, 0]


CHARGES, DEVIATIONS = np.linspace(0.0, 1.0, 61), np.linspace(-10.0, 10.0, 31)
TEMPERATURES, POWERS = np.array([-20.0, -10.0, 0.0, 7.0, 15.0, 40.0]), np.linspace(-MAX_POWER, MAX_POWER, 41)


@cache
def future_values() -> dict[tuple[int, int, int], np.ndarray]:
    """By dynamic programming: (hour, site, forecast) -> expected return after that hour, on a grid of charge after it,
    and of deviation and temperature before it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    expected_deviation = np.zeros((len(DEVIATIONS), len(DEVIATIONS)))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        expected_deviation += weight * weights_on(DEVIATIONS, REVERSION * DEVIATIONS + PRICE_NOISE * node)
    grid = np.meshgrid(CHARGES, DEVIATIONS, TEMPERATURES, indexing="ij")
    futures = {}
    for site in range(len(SITES)):
        for forecast in range(len(FORECASTS)):
            value = np.zeros(grid[0].shape)
            for hour in map(int, HOURS[::-1]):
                expected_temperature = weights_on(TEMPERATURES, TEMPERATURES + warming(hour))
                future = np.einsum("cdt,ed,ut->ceu", value, expected_deviation, expected_temperature, optimize=True)
                futures[hour, site, forecast] = future
                if hour > HOURS[0]:
                    state = _grid_state(hour, site, forecast, grid)
                    value = best(state, future)[1].reshape(grid[0].shape)
    return futures


def _grid_state(hour: int, site: int, forecast: int, grid: Sequence[np.ndarray]) -> State:
    charge, deviation, temperature = (axis.ravel() for axis in grid)
    index = np.zeros(charge.size, int)
    stored = charge * CAPACITY[site]
    return State(index, hour, index + site, index + forecast, deviation, stored, temperature)


def weights_on(axis: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(points, axis): linear interpolation as a matrix, constant outside."""
    return np.stack([np.interp(points, axis, unit) for unit in np.eye(len(axis))], axis=1)


def best(state: State, future: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best power of POWERS for states of one site and forecast, and its value."""
    from scipy.ndimage import map_coordinates

    places = [np.interp(x, axis, np.arange(len(axis))) for x, axis in _deviation_and_temperature(state)]
    power, value = np.zeros(len(state.site)), np.full(len(state.site), -np.inf)
    for candidate in POWERS:
        setting = np.full(len(power), candidate)
        profit, after = step(state.hour, setting, state.price, state.stored, state.site, state.temperature)
        charge = after / CAPACITY[state.site] * (len(CHARGES) - 1)
        total = profit + map_coordinates(future, [charge, *places], order=1, mode="nearest")
        power, value = np.where(total > value, candidate, power), np.maximum(total, value)
    return power, value


def _deviation_and_temperature(state: State) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    return (state.deviation, DEVIATIONS), (state.temperature, TEMPERATURES)


def optimum(state: State, random: np.random.Generator) -> np.ndarray:
    """The best power for each state, up to the grid; it knows the true system and every temperature."""
    power = np.zeros(len(state.site))
    for (hour, site, forecast), future in future_values().items():
        rows = (state.site == site) & (state.forecast == forecast)
        if hour == state.hour and rows.any():
            power[rows] = best(state.take(rows), future)[0]
    return power


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="storage", help="where to write (default: %(default)s)")
    parser.add_argument("--days", type=int, default=DAYS, help="(default: %(default)s)")
    parser.add_argument("--evaluate", metavar="RUN", help="instead: the true return of a run's policy")
    options = parser.parse_args()
    if options.evaluate is None:
        table = record(options.days)
        write_folder(table, Path(options.folder))
        print(f"{table.num_rows:,} rows in {options.folder}")
        return
    import pspo

    low, high = mean_return(rule_with_noise), mean_return(optimum)
    truth = mean_return(by_name(pspo.load_policy(options.evaluate)))
    print(f"euros per day and site: the rule {low:.2f}, the policy {truth:.2f}, the optimum {high:.2f}")
    print(f"The policy closes {100 * (truth - low) / (high - low):.0f} % of the gap.")


if __name__ == "__main__":
    main()
