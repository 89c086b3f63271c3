"""The section for the liquidation task: the learned policy compared with the exact optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, PercentFormatter
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
from pspo.report.canvas import GREY, HALF, INK, VERMILION, png, styled, svg
from pspo.report.markup import figure, missing, number, paragraph, percent, section
from pspo.report.run.contents import Contents

TASK = "liquidation"
TITLE = "The learned policy against the optimum"
PRICES = np.linspace(0.5, 3.0, 251)
OBS_DIM = 3  # time, inventory, price


def liquidation_policy_section(contents: Contents) -> str:
    """Maps of what the policy sells and of what its errors cost, and the agreement in words."""
    if contents.task is None or contents.task.name != TASK:
        return ""
    try:
        maps = policy_map(load_policy(contents.run.path))
    except UserError as problem:
        return section("policy", TITLE, missing(f"The policy cannot be shown: {problem}"))
    panels = [
        svg(policy_figure(maps, [name], HALF), f"policy-{name}", f"Map of {what} over time and price, full inventory.")
        for name, what in (("learned", "the fraction sold"), ("lost", "the share of value lost"))
    ]
    caption = (
        f"With all {INVENTORY:.0f} units in hand. The optimum sells everything above the threshold and nothing below "
        "it, so a perfect policy is dark above the line and white below. Between the dotted lines lie 98 % of the "
        "prices that occur at that time; elsewhere the dataset has hardly any transitions and the policy’s action "
        "hardly matters. The cost is the value lost by the learned action in that state, acting optimally afterwards."
    )
    return section("policy", TITLE, paragraph(*_agreement(maps)), figure(panels, caption))


@dataclass(frozen=True)
class PolicyMap:
    """What a policy does over time and price, and the optimum."""

    times: np.ndarray
    prices: np.ndarray
    learned: np.ndarray  # (times, prices): fraction sold
    optimal: np.ndarray  # (times, prices): fraction the optimum sells, 0 or 1
    lost: np.ndarray  # (times, prices): share of the state's value that the learned action loses
    threshold: np.ndarray  # (times,): lowest price at which the optimum sells
    likely: np.ndarray  # (2, times): 98 % of episodes lie between these prices


def policy_map(policy: Policy) -> PolicyMap:
    """The policy's mode over the whole grid of times and prices, with full inventory."""
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
        learned=np.clip(action[..., 0], 0.0, 1.0),  # as the task does
        optimal=np.clip(liquidation_optimum.optimal_action(obs)[..., 0], 0.0, 1.0),
        lost=np.maximum(0.0, value - liquidation_optimum.q_value(obs, action)) / value,
        threshold=liquidation_optimum.solve().threshold,
        likely=np.stack([_price_distribution(times).ppf(share) for share in (0.01, 0.99)]),
    )


def _price_distribution(t: np.ndarray) -> Any:
    """Distribution of the price at time t, which sales do not move; its clipping at zero lies below the map."""
    stays = (1 - REVERSION) ** t
    mean = MEAN_PRICE + stays * (START_PRICE - MEAN_PRICE)
    fresh = PRICE_SD**2 * (1 - stays**2) / (1 - (1 - REVERSION) ** 2)
    return gaussian(mean, np.sqrt(fresh + (stays * START_PRICE_SD) ** 2))


def _agreement(maps: PolicyMap) -> list[str]:
    same = (maps.learned > 0.5) == (maps.optimal > 0.5)
    undecided = (maps.learned > 0.05) & (maps.learned < 0.95)
    often = _price_distribution(maps.times[:, None]).pdf(maps.prices)
    often /= often.sum()
    # The last step has no threshold: selling at any price is right.
    learned = np.array([_learned_threshold(row, maps.prices) for row in maps.learned[:-1]])
    gap = learned - maps.threshold[:-1]
    return [
        f"Weighted by how often each price occurs at that time, the policy makes the same choice as the optimum, "
        f"sell or hold, in {percent((same * often).sum())} of the states (unweighted: {percent(same.mean())}).",
        f"Its actions lose {percent((maps.lost * often).sum(), 2)} of the value on average.",
        f"The optimum sells everything or nothing; the policy sells between 5 and 95 % in "
        f"{percent((undecided * often).sum())} of the states.",
        f"The price at which it starts to sell lies {number(abs(float(gap.mean())), 2)} "
        f"{'above' if gap.mean() > 0 else 'below'} the optimal threshold on average over time, and at most "
        f"{number(float(np.abs(gap).max()), 2)} away from it."
        if np.isfinite(gap).all()
        else "At some time steps it sells at no price, or at every price, on the map.",
    ]


def _learned_threshold(fraction: np.ndarray, prices: np.ndarray) -> float:
    """The price that separates hold from sell with the fewest errors; NaN where it always or never sells."""
    sells = fraction > 0.5
    if sells.all() or not sells.any():
        return float("nan")
    sold_below = np.concatenate([[0], np.cumsum(sells)])
    held_above = (~sells).sum() - np.concatenate([[0], np.cumsum(~sells)])
    return float(prices[min(int(np.argmin(sold_below + held_above)), len(prices) - 1)])


PANELS = {
    "learned": ("Learned policy", "Blues", "fraction sold"),
    "optimal": ("Optimal policy", "Blues", "fraction sold"),
    "lost": ("Cost of the difference", "Oranges", "share of value lost"),
}


@styled
def policy_figure(
    maps: PolicyMap, shown: Sequence[str] = ("learned", "optimal"), size: tuple[float, float] = (9.2, 3.5)
) -> Figure:
    """Maps over (time, price), side by side, with the optimal threshold: above it the optimum sells everything."""
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, name in zip(grid, shown, strict=True):
        title, colours, meaning = PANELS[name]
        values = getattr(maps, name)
        top = 1.0 if colours == "Blues" else max(0.01, float(values.max()))
        extent = (maps.times[0] - 0.5, maps.times[-1] + 0.5, maps.prices[0], maps.prices[-1])
        image = axes.imshow(
            values.T,
            origin="lower",
            extent=extent,
            aspect="auto",
            interpolation="nearest",
            cmap=colours,
            norm=Normalize(0, top),
        )
        _decorate(axes, maps, name == shown[0])
        axes.set_title(title)
        if name == shown[-1] or PANELS[shown[-1]][2] != meaning:  # one colour bar for maps with the same scale
            bar = figure.colorbar(image, ax=axes, label=meaning, pad=0.02, aspect=25)
            bar.ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if top > 0.05 else 1))
            bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def _decorate(axes: Axes, maps: PolicyMap, first: bool) -> None:
    """The optimal threshold, the prices that occur, and the axes."""
    start, end = maps.times[0] - 0.5, maps.times[-1] + 0.5
    axes.stairs(maps.threshold, np.arange(start, end + 1), baseline=None, color=VERMILION, lw=2.2)
    halo = [withStroke(linewidth=2.6, foreground="white", alpha=0.75)]  # visible on dark and on light
    for edge in maps.likely:
        axes.plot(maps.times, edge, c=INK, lw=1, ls=(0, (2, 2)), path_effects=halo)
    axes.set(xlabel="time step", xlim=(start, end), ylim=(maps.prices[0], maps.prices[-1]))
    axes.set_ylabel("price" if first else "")
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    middle = len(maps.times) // 2
    _note(axes, "optimal threshold", (maps.times[middle], maps.threshold[middle]), VERMILION, ha="center", va="top")
    corner = (maps.times[0] + 2, maps.prices[0])
    _note(axes, "98 % of prices lie between the dotted lines", corner, GREY, ha="left", va="bottom")


def _note(axes: Axes, words: str, point: tuple[float, float], colour: str, ha: str, va: str) -> None:
    """Text beside a point, legible on dark and on light."""
    background = {"boxstyle": "round,pad=0.15", "fc": "white", "lw": 0, "alpha": 0.8}
    offset = (0, 6 if va == "bottom" else -10)
    axes.annotate(
        words, point, offset, textcoords="offset points", color=colour, ha=ha, va=va, bbox=background, fontsize=8.5
    )


def save_policy_png(run_path: Path, png_path: Path, dpi: int = 110) -> Path:
    """The learned policy beside the optimal one, as a PNG: docs/images/liquidation-policy.png is made by this."""
    write_atomic(Path(png_path), png(policy_figure(policy_map(load_policy(run_path))), dpi))
    return Path(png_path)
