"""The liquidation task's own part of the report: the learned policy against the exact optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm as gaussian

from pspo.core.errors import UserError
from pspo.core.files import write_atomic
from pspo.envs import liquidation_optimum
from pspo.envs.liquidation_rules import (
    HORIZON,
    INVENTORY,
    MEAN_PRICE,
    PRICE_SD,
    REVERSION,
    START_PRICE,
    START_PRICE_SD,
)
from pspo.policies.policy import Policy, load_policy
from pspo.report.canvas import HALF, png, svg
from pspo.report.figures import PolicyMap, policy_figure
from pspo.report.markup import figure, missing, number, paragraph, percent, section
from pspo.report.run.contents import Contents

TITLE = "The learned policy against the optimum"
PRICES = np.linspace(0.5, 3.0, 251)
OBS_DIM = 3  # time, inventory, price


def policy_section(contents: Contents) -> str:
    """Maps of what the policy sells and of what its errors cost, and the agreement in words."""
    try:
        found = policy_map(load_policy(contents.run.path))
    except UserError as problem:
        return section("policy", TITLE, missing(f"The policy cannot be shown: {problem}"))
    panels = [
        svg(policy_figure(found, [name], HALF), f"policy-{name}", f"Map of {what} over time and price, full inventory.")
        for name, what in (("learned", "the fraction sold"), ("lost", "the share of value lost"))
    ]
    caption = (
        f"With all {INVENTORY:.0f} units in hand. The optimum sells everything above the threshold and nothing below "
        "it, so a perfect policy is dark above the line and white below. Between the dotted lines lie 98 % of the "
        "prices that occur at that time; elsewhere the log has hardly any data and the policy’s action hardly "
        "matters. The cost is the value that the learned action gives away in that state, acting optimally ever after."
    )
    return section("policy", TITLE, paragraph(*_agreement(found)), figure(panels, caption))


def policy_map(policy: Policy) -> PolicyMap:
    """The policy by its mode on the whole grid, with full inventory."""
    if policy.obs_dim != OBS_DIM or policy.action_dim != 1:
        raise UserError(
            f"it takes {policy.obs_dim} and gives {policy.action_dim} numbers, where liquidation has {OBS_DIM} and 1."
        )
    times = np.arange(HORIZON)
    t, p = np.meshgrid(times, PRICES, indexing="ij")
    obs = np.stack([t, np.full_like(p, INVENTORY), p], axis=-1)
    action = policy(obs)
    value = liquidation_optimum.v_value(obs)
    return PolicyMap(
        times=times,
        prices=PRICES,
        learned=np.clip(action[..., 0], 0.0, 1.0),  # what the task makes of an action
        optimal=np.clip(liquidation_optimum.optimal_action(obs)[..., 0], 0.0, 1.0),
        lost=np.maximum(0.0, value - liquidation_optimum.q_value(obs, action)) / value,
        threshold=liquidation_optimum.solve().threshold,
        likely=np.stack([_price_law(times).ppf(share) for share in (0.01, 0.99)]),
    )


def _price_law(t: np.ndarray) -> Any:
    """The price at time t, which nobody's sales move. Left out is the clipping at zero: it shows below the map only."""
    stays = (1 - REVERSION) ** t
    mean = MEAN_PRICE + stays * (START_PRICE - MEAN_PRICE)
    fresh = PRICE_SD**2 * (1 - stays**2) / (1 - (1 - REVERSION) ** 2)
    return gaussian(mean, np.sqrt(fresh + (stays * START_PRICE_SD) ** 2))


def _agreement(found: PolicyMap) -> list[str]:
    same = (found.learned > 0.5) == (found.optimal > 0.5)
    undecided = (found.learned > 0.05) & (found.learned < 0.95)
    often = _price_law(found.times[:, None]).pdf(found.prices)
    often /= often.sum()
    # The last step has no threshold: selling at any price is right.
    learned = np.array([_learned_threshold(row, found.prices) for row in found.learned[:-1]])
    gap = learned - found.threshold[:-1]
    return [
        f"Weighing every state by how often its price occurs at that time, the policy makes the optimum’s choice, "
        f"sell or hold, in {percent((same * often).sum())} of the states (whole map, all prices alike: "
        f"{percent(same.mean())}).",
        f"Its actions there give away {percent((found.lost * often).sum(), 2)} of the value on average.",
        f"The optimum never sells a part; the policy sells between 5 and 95 % in {percent((undecided * often).sum())} "
        "of the states.",
        f"The price at which it starts to sell lies {number(abs(float(gap.mean())), 2)} "
        f"{'above' if gap.mean() > 0 else 'below'} the optimal threshold on average over time, and at most "
        f"{number(float(np.abs(gap).max()), 2)} away from it."
        if np.isfinite(gap).all()
        else "At some times it sells at no price, or at every price, on the map.",
    ]


def _learned_threshold(fraction: np.ndarray, prices: np.ndarray) -> float:
    """The price that splits the row into hold and sell with the fewest states on the wrong side; NaN without any."""
    sells = fraction > 0.5
    if sells.all() or not sells.any():
        return float("nan")
    sold_below = np.concatenate([[0], np.cumsum(sells)])
    held_above = (~sells).sum() - np.concatenate([[0], np.cumsum(~sells)])
    return float(prices[min(int(np.argmin(sold_below + held_above)), len(prices) - 1)])


def save_policy_png(run_path: Path, png_path: Path, dpi: int = 110) -> Path:
    """The learned policy beside the optimal one, as a picture for a README."""
    write_atomic(Path(png_path), png(policy_figure(policy_map(load_policy(run_path))), dpi))
    return Path(png_path)
