"""Minari datasets that are installed on this machine, by the name minari:ID."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding

PREFIX = "minari:"


def load_minari(identifier: str, encoding: Encoding = FIT) -> Dataset:
    """The dataset of that ID, with the true next observation of every step, including the last."""
    try:
        import minari
    except ImportError:
        raise UserError(f"'{PREFIX}{identifier}' needs minari: pip install 'pspo[minari]'.") from None
    try:
        source = minari.load_dataset(identifier)
        arrays = _arrays(source, identifier)
    except FileNotFoundError:
        raise UserError(
            f"there is no Minari dataset '{identifier}' on this machine: run `minari download {identifier}`."
        ) from None
    except UserError:
        raise
    except Exception as error:  # Minari checks little: a damaged file can raise anything
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200].rstrip(".")
        raise UserError(f"the Minari dataset '{identifier}' cannot be read ({reason}): download it again.") from None
    return Dataset.from_arrays({**arrays, "name": identifier.replace("/", "-")}, encoder=encoding)


def _arrays(source: Any, identifier: str) -> dict[str, Any]:
    obs_parts = _parts(source.observation_space, "observations", identifier, keys_allowed=True)
    labels = _labels(source.action_space)
    if labels is None:
        _parts(source.action_space, "actions", identifier, keys_allowed=False)
    rows, widths = int(source.total_steps), [part.shape[0] for part in obs_parts.values()]
    kind = _kind(*obs_parts.values())
    obs, next_obs = (np.empty((rows, sum(widths)), kind) for _ in range(2))
    shape = (rows, *source.action_space.shape)
    action = np.empty(shape, _kind(source.action_space) if labels is None else np.int64)
    reward, terminal, timeout = np.empty(rows, np.float64), np.zeros(rows, bool), np.zeros(rows, bool)
    start = 0
    for episode in source.iterate_episodes():
        here = slice(start, start + len(episode.rewards))
        observations = _flat(episode.observations, list(obs_parts))
        if len(observations) != len(episode.rewards) + 1:
            raise UserError(
                f"episode {episode.id} of '{identifier}' has {len(episode.rewards)} steps and {len(observations)} "
                "observations instead of one more: write it again."
            )
        obs[here], next_obs[here], action[here] = observations[:-1], observations[1:], episode.actions
        reward[here], terminal[here], timeout[here] = episode.rewards, episode.terminations, episode.truncations
        if len(episode.rewards) and not terminal[here.stop - 1]:
            timeout[here.stop - 1] = True  # an episode without a flag was cut off here; the task did not end
        start = here.stop
    if start != rows:
        raise UserError(f"'{identifier}' has {start} steps where {rows} are declared: download it again.")
    for array in (obs, next_obs, action, reward):
        array.setflags(write=False)  # no other references: the dataset need not copy them
    arrays = {"observations": obs, "actions": action, "rewards": reward, "next_observations": next_obs}
    if labels is not None:
        return {**arrays, "terminals": terminal, "timeouts": timeout, "action_labels": labels}
    low, high = source.action_space.low, source.action_space.high
    bounds = {"action_low": low, "action_high": high} if np.isfinite([low, high]).all() else {}
    return {**arrays, "terminals": terminal, "timeouts": timeout, **bounds}


def _kind(*spaces: Any) -> type[np.floating]:
    """Float64 where a number may need an offset or a note."""
    return np.float64 if any(np.dtype(space.dtype).itemsize > 4 for space in spaces) else np.float32


def _labels(space: Any) -> list[int] | None:
    """All labels of a discrete space, also those that were never taken."""
    from gymnasium.spaces import Discrete

    return [*range(int(space.start), int(space.start + space.n))] if isinstance(space, Discrete) else None


def _parts(space: Any, what: str, identifier: str, keys_allowed: bool) -> dict[str | None, Any]:
    """The boxes that a space consists of, in the order of their keys; None is the key of a plain box."""
    from gymnasium.spaces import Box
    from gymnasium.spaces import Dict as DictSpace

    parts: dict[str | None, Any] = {None: space}
    if isinstance(space, DictSpace) and keys_allowed:
        parts = {key: space[key] for key in sorted(space)}
    for key, part in parts.items():
        if not isinstance(part, Box) or len(part.shape) != 1:
            which = what if key is None else f"the part '{key}' of the {what}"
            also = " and discrete actions" if what == "actions" else ""
            raise UserError(
                f"{which} of '{identifier}' are {part}: only boxes with one axis{also} are supported, so choose "
                "another."
            )
    return parts


def _flat(observations: Any, keys: list[str | None]) -> np.ndarray:
    parts = [np.asarray(observations if key is None else observations[key]) for key in keys]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
