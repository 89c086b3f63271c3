"""Fit an encoder to the raw columns of a dataset: which categories get a column, and what a missing value counts as.

Categories are one-hot. The most frequent get a column each; all others share the pattern of zeros, which is also what
a value means that appears only when the policy is served. docs/decisions.md says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from pspo.core.errors import UserError
from pspo.data.encoder import MISSING, EncodedColumn

MOST_CATEGORIES = 32  # columns that one column of texts may become
LIKE_A_NUMBER = re.compile(r"[-+(]?[$€£¥]? ?[-+]?\d[\d.,' \u00a0\u202f]*([eEdD][-+]?\d+)?[%$€£¥]?\)?")
FEW_ROWS, SMALL_SHARE = 10, 0.01  # a category with fewer rows than either gets no column


def fit_category(name: str, counts: Mapping[str, int], wanted: bool = False) -> EncodedColumn:
    """From how many rows have each text; the empty text is a missing value, and a category like any other.

    Many texts that look like numbers are refused, unless the user `wanted` categories.
    """
    rows = sum(counts.values())
    texts = [text for text in counts if not text.isdigit() and text != MISSING]  # digits alone may be a code
    if not wanted and len(texts) > MOST_CATEGORIES and all(map(LIKE_A_NUMBER.fullmatch, texts)):
        raise UserError(
            f"column '{name}' holds texts that look like numbers, such as '{texts[0]}': write them as plain numbers, "
            "such as 1234.5, or choose it with --categorical."
        )
    enough = min(FEW_ROWS, SMALL_SHARE * rows)
    by_frequency = sorted(counts, key=lambda text: (-counts[text], text))
    kept = [text for text in by_frequency if counts[text] >= enough][:MOST_CATEGORIES]
    if MISSING in counts and MISSING not in kept:
        kept = [*kept[: MOST_CATEGORIES - 1], MISSING]  # an indicator, however rare
    if not set(kept) - {MISSING}:
        raise UserError(
            f"column '{name}' has {len(counts)} different texts, and none in more than {max(counts.values())} rows, as "
            "names or numbers of single rows do: leave it out of the state."
        )
    other = rows - sum(counts[text] for text in kept)
    return EncodedColumn(name, "category", categories=tuple(sorted(kept, key=_text_or_number)), other=other)


def _text_or_number(text: str) -> tuple[int, float, str]:
    """Numbers in their order, then texts in theirs, then what is missing."""
    try:
        number = float(text)
    except ValueError:
        return (2 if text == MISSING else 1), 0.0, text
    return 0, number if math.isfinite(number) else 0.0, text


def fit_number(name: str, offset: float, values: np.ndarray, has_gaps: bool) -> EncodedColumn:
    """`values` are float32 after the offset was subtracted, NaN where missing: these count as the median.

    The lower of two medians, which is a value of the column: a counter stays one.
    """
    if not has_gaps:
        return EncodedColumn(name, offset=offset)
    known = np.sort(values[np.isfinite(values)])
    if not known.size:
        return EncodedColumn(name, offset=offset)  # nothing to fill with: `check` reports what is missing
    return EncodedColumn(name, offset=offset, fill=float(known[(len(known) - 1) // 2]) + offset)


def fit_time(
    name: str, parts: Sequence[np.ndarray], has_gaps: bool, cyclic: Sequence[str], zone: bool = False
) -> EncodedColumn:
    """`parts` are seconds before and after the step, in float64; `zone`: whether the times named a time zone."""
    known = np.sort(np.concatenate([part[np.isfinite(part)] for part in parts]))
    if not known.size:
        raise UserError(f"column '{name}' holds no times: leave it out of the state.")
    fill = float(known[(len(known) - 1) // 2]) if has_gaps else None
    if cyclic:
        return EncodedColumn(name, "time", fill=fill, cyclic=tuple(cyclic), zone=zone)
    # The middle, to the hour: every time of today's clocks is large, and float32 has seven digits.
    offset = 3600.0 * round((known[0] + known[-1]) / 7200.0)
    return EncodedColumn(name, "time", offset=offset, fill=fill, zone=zone)
