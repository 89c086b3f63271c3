"""The numbers that define the liquidation task, in one place for all its implementations."""

from __future__ import annotations

HORIZON = 20
INVENTORY = 100.0
MIN_INVENTORY = 0.1
"""An episode ends once less than this is left; what is left is lost."""

START_PRICE = 1.0
START_PRICE_SD = 0.05
MEAN_PRICE = 1.5
REVERSION = 0.05
PRICE_SD = 0.2
PRICE_LOW = 0.0
PRICE_HIGH = 5.0

SALE_PROBABILITY = 0.2
"""The behaviour policy sells with this probability at each step and holds otherwise."""

RANDOM_RETURN = 0.0
EXPERT_RETURN = 135.0
OPTIMAL_RETURN = 137.476
"""Rounded from `liquidation_optimum.solve().mean_return`, so that a task can be looked up without solving it."""

OBS_NAMES = ("steps taken", "inventory left", "price")
ACTION_NAMES = ("fraction sold",)
