"""The section on the dynamics models and the reference policy: their quality on hold-out data."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.report.canvas import BLUE, GREY, INK, PALE, svg
from pspo.report.charts import Line, lines
from pspo.report.markup import figure, missing, number, paragraph, percent, section
from pspo.report.run.contents import Contents

CALIBRATION_CAPTION = (
    "Calibration: the share of hold-out values inside the models’ central interval of each size; on the diagonal the "
    "predicted standard deviation is right, above it the models are underconfident. Thin lines are single targets (the "
    "observation’s columns, then the reward); one that hardly varies, such as a time step, is covered far too often. "
)
STEPS_CAPTION = "Steps ahead: error of the models’ mean prediction under the dataset’s actions, in standard deviations."


def model_quality_section(contents: Contents) -> str:
    if not contents.has_posterior and not contents.models:
        return ""
    title = "Quality of the models"
    one_model = contents.models.get("any_step")  # it has no calibration
    pool = contents.models.get("pool") or one_model or {}
    reference = contents.models.get("reference") or {}
    if not pool and not reference:
        return section("models", title, missing("Neither models nor a reference policy were recorded."))
    panels = [_calibration(pool), _steps_ahead(pool)]
    notices = [
        missing(sentence)
        for known, sentence in (
            (panels[0] or one_model, "The calibration of the models was not recorded."),
            (panels[1], "The models’ error over several steps was not recorded."),
            (pool.get("holdout_log_likelihood"), "The models’ hold-out likelihood was not recorded."),
            (
                reference.get("holdout_log_likelihood") is not None or not contents.has_posterior,
                "The reference policy’s fit was not recorded.",
            ),
        )
        if not known
    ]
    caption = CALIBRATION_CAPTION * bool(panels[0]) + STEPS_CAPTION
    sentences = [*_pool_words(pool), _reference_words(reference)]
    return section("models", title, paragraph(*sentences), figure(panels, caption), "".join(notices))


def _calibration(pool: dict[str, Any]) -> str | None:
    levels, coverage = pool.get("calibration_levels"), pool.get("calibration_coverage")
    if not levels or not coverage or len(levels) != len(coverage):
        return None
    single = [Line(levels, row, PALE, width=1) for row in _per_target(pool)]
    ideal = Line([0, 1], [0, 1], INK, "ideal", "--", 1)
    average = Line(levels, coverage, BLUE, "average", width=2.2)
    every = [*single, ideal, average]
    drawn = lines(every, "Calibration", x_label="expected coverage", y_label="observed coverage")
    return svg(drawn, "models-calibration", "Observed against expected coverage of the models’ intervals.")


def _per_target(pool: dict[str, Any]) -> list[list[float]]:
    """Coverage of each target, at all levels."""
    levels, rows = pool.get("calibration_levels") or [], pool.get("calibration_coverage_per_target") or []
    return rows if all(row is not None and len(row) == len(levels) for row in rows) else []


def _steps_ahead(pool: dict[str, Any]) -> str | None:
    error, unchanged = pool.get("k_step_error"), pool.get("k_step_error_of_no_change")
    if not error or not unchanged:
        return None
    drawn = [
        Line(np.arange(1, len(unchanged) + 1), unchanged, GREY, "“no change”", "--", 1.6),
        Line(np.arange(1, len(error) + 1), error, BLUE, "models", marker="o"),
    ]
    limits = (0, 1.08 * max(*error, *unchanged))
    drawn = lines(drawn, "Error several steps ahead", x_label="steps ahead", y_label="error", y_limits=limits)
    return svg(drawn, "models-steps-ahead", "Prediction error against steps ahead.")


def _pool_words(pool: dict[str, Any]) -> list[str]:
    sentences = []
    if likelihood := pool.get("holdout_log_likelihood"):
        low, mean, high = min(likelihood), float(np.mean(likelihood)), max(likelihood)
        several = f" on average, from {number(low, 3)} to {number(high, 3)}" if len(likelihood) > 1 else ""
        count = f"{len(likelihood)} models" if len(likelihood) > 1 else "One model"
        sentences.append(f"{count}: hold-out log-likelihood {number(mean, 3)} nats per transition and target{several}.")
    if (error := pool.get("calibration_error")) is not None:
        sentences.append(f"Their coverage is off by {number(100 * error, 1)} points on average{_by_target(pool)}.")
    if (error := pool.get("k_step_error")) and (unchanged := pool.get("k_step_error_of_no_change")):
        k = min(len(error), len(unchanged))
        share = f", {percent(error[k - 1] / unchanged[k - 1], 0)} of" if unchanged[k - 1] > 0 else "; compare"
        sentences.append(
            f"{k} steps ahead predictions are off by {number(error[k - 1], 2)} standard deviations{share} the "
            f"{number(unchanged[k - 1], 2)} of predicting no change."
        )
    return sentences


def _by_target(pool: dict[str, Any]) -> str:
    """The best and the worst calibrated target; models predict the observation's columns, then the reward."""
    levels, rows = pool.get("calibration_levels"), _per_target(pool)
    if not levels or len(rows) < 2:
        return ""
    error = 100 * np.abs(np.array(rows) - np.array(levels)).mean(1)
    names = [f"observation {d}" for d in range(len(rows) - 1)] + ["reward"]
    best, worst = int(error.argmin()), int(error.argmax())
    return (
        f", from {number(float(error[best]), 1)} ({names[best]}) to {number(float(error[worst]), 1)} ({names[worst]})"
    )


def _reference_words(reference: dict[str, Any]) -> str:
    likelihood, uniform = reference.get("holdout_log_likelihood"), reference.get("uniform_log_likelihood")
    if likelihood is None:
        return ""
    words = f"The reference policy μ has a hold-out log-likelihood of {number(likelihood, 3)} nats per action"
    if uniform is None:
        return f"{words}; a uniform policy’s likelihood was not recorded."
    verdict = "better" if likelihood > uniform else "not better"
    return f"{words}, {verdict} than a uniform policy’s {number(uniform, 3)} (higher is better)."
