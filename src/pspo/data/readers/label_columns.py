"""An Arrow column whose values may be labels of discrete actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.discrete import Coded


def is_label_type(kind: Any) -> bool:
    """Texts, booleans and whole numbers may be labels; so may categories of them."""
    import pyarrow as pa

    if kind is None:
        return False
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind)


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def label_column(
    name: str, chunks: Sequence[Any], declared: Any, discrete: bool | None, where: Callable[[int], str]
) -> np.ndarray | Coded:
    """Texts as codes; numbers as they are, in one column. `declared` is the type of the column, or its guess."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.chunked_array(chunks).combine_chunks()
    if not is_text(whole.type):
        values = whole.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f" and declared is not None and pa.types.is_integer(declared):
            is_whole = bool(np.isfinite(values).all() and (values == np.rint(values)).all())
            values = values.astype(np.int64) if is_whole else values  # a CSV says what it holds only at its end
        return values[:, None]
    coded = pc.call_function("utf8_trim_whitespace", [whole]).dictionary_encode()
    if coded.null_count:
        row = int(coded.is_null().to_numpy(zero_copy_only=False).argmax())
        raise UserError(f"column '{name}' is empty at {where(row)}: give every row its action.")
    labels = coded.dictionary.to_pylist()
    _refuse_typing_errors(name, labels, coded.indices.to_numpy(), discrete, where)
    order = sorted(range(len(labels)), key=labels.__getitem__)  # the order of the rows must not matter
    rank = np.argsort(np.array(order, np.int64))
    return Coded(rank[coded.indices.to_numpy()], tuple(labels[i] for i in order))


def _refuse_typing_errors(
    name: str, labels: Sequence[str], codes: np.ndarray, discrete: bool | None, where: Callable[[int], str]
) -> None:
    """One text among numbers is more often a mistake than a label."""
    texts = [code for code, label in enumerate(labels) if not is_number(label)]
    if discrete or not texts or len(texts) == len(labels):
        return
    row = int(np.isin(codes, texts).argmax())
    raise UserError(
        f"column '{name}' holds '{labels[codes[row]][:40]}' at {where(row)}, which is not a number where others are: "
        "correct it, or give --discrete if all are labels."
    )


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
