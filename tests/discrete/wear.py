"""A machine that wears: a finite MDP with three labels, its optimum by value iteration, and a dataset that covers it.

The state is the wear, 0 to 9. `run` earns 10 minus the wear and adds 0, 1 or 2 to it; `repair` costs 2 and takes 4 off;
`replace` costs 8 and sets it to 0. At wear 9 running breaks the machine: it earns -20 and the wear stays.
"""

from __future__ import annotations

import numpy as np

from pspo.data import Dataset

LABELS = ("repair", "replace", "run")
STATES, GAMMA = 10, 0.9
ADDED = {0: 0.2, 1: 0.5, 2: 0.3}  # wear that a step adds, with its probability


def reward(state: int, label: str) -> float:
    if label == "run":
        return 10.0 - state if state < STATES - 1 else -20.0
    return -2.0 if label == "repair" else -8.0


def transitions(state: int, label: str) -> dict[int, float]:
    if label != "run":
        return {max(state - 4, 0) if label == "repair" else 0: 1.0}
    outcome: dict[int, float] = {}
    for added, probability in ADDED.items():
        after = min(state + added, STATES - 1)
        outcome[after] = outcome.get(after, 0.0) + probability
    return outcome


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Rewards (states, labels) and probabilities (states, labels, next states)."""
    r, p = np.zeros((STATES, 3)), np.zeros((STATES, 3, STATES))
    for s in range(STATES):
        for a, label in enumerate(LABELS):
            r[s, a] = reward(s, label)
            for after, probability in transitions(s, label).items():
                p[s, a, after] = probability
    return r, p


def optimal_values() -> np.ndarray:
    """(states,) by value iteration."""
    r, p = arrays()
    value = np.zeros(STATES)
    for _ in range(2000):
        value = (r + GAMMA * p @ value).max(axis=1)
    return value


def values_of(labels: list[str]) -> np.ndarray:
    """(states,) of the policy that takes labels[s] in state s, exactly."""
    r, p = arrays()
    chosen = [LABELS.index(label) for label in labels]
    rows = np.arange(STATES)
    return np.linalg.solve(np.eye(STATES) - GAMMA * p[rows, chosen], r[rows, chosen])


def dataset(
    episodes: int = 300, length: int = 20, seed: int = 0, rule: list[str] | None = None, **more: object
) -> Dataset:
    """Labels at random, whatever the state, or with a `rule` its own in two of three cases; every episode is cut."""
    rng = np.random.default_rng(seed)
    obs, action, rewards, next_obs, timeout = [], [], [], [], []
    for _ in range(episodes):
        state = int(rng.integers(STATES))
        for step in range(length):
            label = LABELS[rng.integers(3)]
            if rule and rng.random() < 0.5:
                label = rule[state]
            outcome = transitions(state, label)
            after = int(rng.choice([*outcome], p=[*outcome.values()]))
            obs.append([state])
            action.append(label)
            rewards.append(reward(state, label))
            next_obs.append([after])
            timeout.append(step == length - 1)
            state = after
    return Dataset(
        **(
            {
                "obs": np.array(obs),
                "action": np.array(action),
                "reward": np.array(rewards),
                "next_obs": np.array(next_obs),
                "terminal": np.zeros(len(obs), bool),
                "timeout": np.array(timeout),
                "action_labels": LABELS,
                "obs_names": ("wear",),
                "action_names": ("action",),
                "name": "wear",
            }
            | more
        )  # pyright: ignore[reportArgumentType]
    )
