"""Which algorithms share models, and the message to the user."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.algorithms.sharing import about_pool, sharers
from pspo.core.config import build

DATA: dict[str, Any] = {
    "liquidation": SimpleNamespace(task="liquidation", name="liquidation", discrete=False),
    "hopper": SimpleNamespace(task="hopper", name="hopper-medium-v2", discrete=False),
    "walker2d": SimpleNamespace(task="walker2d", name="walker2d-medium-replay", discrete=False),
    "own": SimpleNamespace(task=None, name="log", discrete=False),
}
PAIR = {"1r2r", "rambo"}
PSPOS = {"pspo", "mopo", "combo", "morel", "pmdb"}


def config_of(algo: str, data: Any, **changes: Any) -> Any:
    return build(get_algorithm(algo).Config, preset(algo, "laptop", data.task, data.name), changes)


@pytest.mark.parametrize("where", DATA)
@pytest.mark.parametrize("family", [PSPOS, PAIR], ids=["PSPO's", "RAMBO's"])
def test_the_laptop_presets_share_two_pools(family: set[str], where: str) -> None:
    data = DATA[where]
    # MOReL's discount on locomotion is its authors', 0.999, and the discount sets the unit of the models' rewards.
    family = {algo for algo in family if config_of(algo, data).gamma == config_of("pspo", data).gamma}
    assert "morel" not in family or where in ("liquidation", "own")
    for algo in family:
        assert set(sharers(algo, config_of(algo, data), "laptop", data)) == family - {algo}


def test_other_model_settings_or_another_discount_are_not_shared() -> None:
    data = DATA["hopper"]
    for change in ({"model.steps": 7}, {"gamma": 0.5}):
        assert sharers("mopo", config_of("mopo", data, **change), "laptop", data) == []


def test_the_message_says_where_models_come_from_and_who_shares_them() -> None:
    data = DATA["liquidation"]
    text = about_pool("rambo", config_of("rambo", data), "laptop", data, {"cached": True})
    assert text == "models: 10 networks, found in the cache; shared with 1r2r"
    alone = about_pool("rambo", config_of("rambo", data, **{"model.pool": 3}), "laptop", data, {"cached": False})
    assert alone == "models: 3 networks, fitted now, and kept in the cache"
