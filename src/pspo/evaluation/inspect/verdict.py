"""What speaks against trusting the policy in a state, in sentences that say how much; docs/inspect.md has the table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pspo.evaluation.inspect.acts import Act
from pspo.evaluation.inspect.beliefs import REWARD, Beliefs
from pspo.evaluation.inspect.doubt import Doubt
from pspo.evaluation.inspect.place import NEIGHBOURS, Place
from pspo.evaluation.inspect.values import BEST, Values

FAR = 99.0  # percentile of the distance to logged states
RARE = 1.0  # percent of mu's own draws are as unlikely as the policy's action
MUCH_ALIKE = 0.25  # of an action column's range, over which critics cannot tell actions apart
SURE = 2.0  # spreads by which another action must be better
WORTH = 0.1  # and of how much Q varies over the grid
FEW_MODELS = 2.5  # effective ones
UNSURE = 95.0  # percentile of what models or critics disagree by
SURPRISE = 4.0  # standard deviations between what followed and what the models expect
NONE_SEEN = "None of the signs that are looked for was seen: see docs/inspect.md for what they are."
SHOWN = 3  # columns named in one sentence


def verdict(place: Place, act: Act, values: Values, beliefs: Beliefs, doubt: Doubt) -> list[str]:
    found = [*_not_numbers(act, values, beliefs, doubt), *_of_state(place), *_of_action(act), *_of_values(values)]
    found += [*_of_models(beliefs, doubt), *_of_critics(doubt), *_of_what_followed(beliefs)]
    return found or [NONE_SEEN]


def _not_numbers(act: Act, values: Values, beliefs: Beliefs, doubt: Doubt) -> list[str]:
    parts = {
        "mu's density": [act.reference_log_density],
        "Q": [q for curve in values.curves for q in curve.q] + [mark.q for mark in values.marks],
        "what the models predict": [beliefs.entropy, doubt.models] + [column.expected for column in beliefs.following],
    }
    bad = [name for name, numbers in parts.items() if not np.isfinite(numbers).all()]
    return [f"Not a finite number is {_listed(bad)}: a network has diverged, or the state is absurd."] if bad else []


def _of_state(place: Place) -> list[str]:
    said = []
    outside = [f"{c.name} is {c.value:.4g} (log: {c.low:.4g} to {c.high:.4g})" for c in place.columns if c.outside]
    if outside:
        said.append(f"The state lies outside of the log's range: {_listed(outside)}.")
    if place.distance_percentile > FAR:
        times = f", {place.distance / place.usual_distance:.1f} times the usual" if place.usual_distance > 0 else ""
        said.append(
            f"The log has few states like this: the {NEIGHBOURS}th nearest is {place.distance:.2g} spreads "
            f"away{times}, farther than for {place.distance_percentile:.1f} % of logged states."
        )
    return said


def _of_action(act: Act) -> list[str]:
    if not act.percentile < RARE:
        return []
    return [
        f"The policy does something the log hardly ever does here: mu's density is {act.below_mode:.1f} nats below "
        f"that of its mode, and {act.percentile:.1f} % of mu's own actions are as unlikely."
    ]


def _of_values(values: Values) -> list[str]:
    said = []
    alike = [
        f"{c.name} from {c.alike[0]:.3g} to {c.alike[1]:.3g}" for c in values.curves if c.share_alike >= MUCH_ALIKE
    ]
    if alike:
        said.append(
            f"The critics cannot tell these actions apart: {_listed(alike)}, where Q differs from that of the policy's "
            "action by less than they differ about it."
        )
    best, varies = values.mark(BEST), np.concatenate([curve.q for curve in values.curves])
    if best.gain > SURE * best.gain_spread and best.gain > WORTH * np.ptp(varies):
        action = ", ".join(f"{part:.3g}" for part in best.action)
        said.append(
            f"The critics prefer another action, {action}: its Q is higher by {best.gain:.3g}, about which they differ "
            f"by {best.gain_spread:.2g}."
        )
    if values.critics == 1:
        said.append("There is one critic: how sure Q is cannot be told.")
    return said


def _of_models(beliefs: Beliefs, doubt: Doubt) -> list[str]:
    said = []
    if beliefs.effective < FEW_MODELS:
        first = beliefs.members[0]
        said.append(
            f"Only {beliefs.effective:.1f} of {len(beliefs.members)} models are believed here, model {first.number} by "
            f"{100 * first.weight:.0f} %: what they agree on says little."
        )
    if doubt.models_percentile > UNSURE:
        said.append(
            f"The models disagree about what follows more than in {doubt.models_percentile:.1f} % of logged states: by "
            f"{doubt.models:.2g} spreads, usually {doubt.models_usual:.2g}."
        )
    return said


def _of_critics(doubt: Doubt) -> list[str]:
    if not doubt.critics_percentile > UNSURE:
        return []
    return [
        f"The critics disagree about Q more than in {doubt.critics_percentile:.1f} % of logged states: by "
        f"{doubt.critics:.2g}, usually {doubt.critics_usual:.2g}."
    ]


def _of_what_followed(beliefs: Beliefs) -> list[str]:
    said = []
    for c in beliefs.following:
        if c.followed is None or c.then_expected is None or c.then_spread is None:
            continue
        if abs(c.followed - c.then_expected) > SURPRISE * max(c.then_spread, 1e-6 * max(1.0, abs(c.followed))):
            what = c.name if c.name == REWARD else f"next {c.name}"
            said.append(f"{what} {c.followed:.4g} (expected {c.then_expected:.4g} ± {c.then_spread:.2g})")
    return [f"What followed the logged action is not what the models expect: {_listed(said)}."] if said else []


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return "; ".join(parts[:SHOWN]) + more
