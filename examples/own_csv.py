"""Your own data as CSV: check it, train on it, estimate the return without a simulator, then compare with the truth.

A water tank is filled at an hourly price and drained by random demand; running dry is expensive. The dataset comes from
an operator who pumps at random. `pip install 'pspo[tables]'`, then `python examples/own_csv.py [--preset smoke]`.
"""

import argparse
import csv

import numpy as np

import pspo
from pspo.evaluation.ope.print_estimates import print_estimates

HOURS, COLUMNS = 24, ["episode", "obs_hour", "obs_level", "obs_price", "action_pump", "reward", "terminal"]


def play(act, days: int, seed: int) -> list[list[tuple[float, ...]]]:
    """Simulate days of the true system in parallel: rows (hour, level, price, pump, reward) of each."""
    rng = np.random.default_rng(seed)
    level, price, rows = rng.uniform(0.3, 0.7, days), rng.uniform(0.5, 1.5, days), []
    for hour in range(HOURS):
        obs = np.stack([np.full(days, hour), level, price], axis=1)
        pump = np.clip(act(obs, rng)[:, 0], 0.0, 1.0)
        after = np.minimum(level + 0.25 * pump, 1.0) - rng.uniform(0.05, 0.15, days)
        reward = -price * pump - 20.0 * np.maximum(-after, 0.0)  # cost of pumping, and of what is missing
        rows.append(np.column_stack([obs, pump, reward]))
        level = np.maximum(after, 0.0)
        price = np.clip(price + 0.3 * (1.0 - price) + rng.normal(0.0, 0.3, days), 0.1, 2.5)
    return np.stack(rows, axis=1).tolist()


def operator(obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The policy behind the dataset: pumps at random, more when the tank is low."""
    return np.clip(rng.uniform(-0.5, 1.2, (len(obs), 1)) + 0.5 * (0.5 - obs[:, 1:2]), 0.0, 1.0)


def mean_return(days: list[list[tuple[float, ...]]]) -> float:
    return float(np.mean([sum(row[-1] for row in day) for day in days]))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--preset", default="laptop")
preset = parser.parse_args().preset
log = play(operator, days=50 if preset == "smoke" else 1000, seed=0)
with open("tank.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(COLUMNS)
    for number, day in enumerate(log):
        table.writerows([number, *row, int(hour == HOURS - 1)] for hour, row in enumerate(day))

data = pspo.load_dataset("tank.csv")
print(f"{data.size:,} rows in tank.csv", *(finding.message for finding in pspo.check(data)), sep="\n- ")
run = pspo.train("tank.csv", preset=preset, settings={"gamma": 1.0})  # a day has an end: no discount needed
print_estimates(pspo.estimate_return(run.path, methods=("models", "fitted-q")))
policy = pspo.load_policy(run.path)
truth = mean_return(play(lambda obs, rng: policy(obs), days=2000, seed=1))
print(f"The truth, which only this script knows: the policy returns {truth:.2f}, the dataset {mean_return(log):.2f}.")
