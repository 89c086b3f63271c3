"""The configuration of a run from preset, caution and settings: the same for `train` and for its dry run."""

from __future__ import annotations

from typing import Any

from pspo.algorithms.caution import about_caution, caution_settings
from pspo.algorithms.contract import Algorithm, extras
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.data.dataset import Dataset


def configure(
    algorithm: Algorithm, algo: str, of_preset: dict[str, Any], settings: dict[str, Any] | None, caution: str
) -> tuple[Any, str]:
    """The config, and one line on what the caution changes, empty for `normal`. Settings win over the caution."""
    normal = build(algorithm.Config, of_preset, algo=algo)
    cautious = caution_settings(algo, normal, caution)
    config = build(algorithm.Config, of_preset, cautious, settings or {}, algo=algo)
    return config, about_caution(caution, normal, cautious) if cautious else ""


def refuse_unused(algorithm: Algorithm, settings: dict[str, Any], data: Dataset) -> None:
    """A setting that has no effect would be ignored silently."""
    for name in extras(algorithm).UNUSED_IF_DISCRETE if data.discrete else ():
        if name in settings:
            raise UserError(f"the setting '{name}' has no effect on discrete actions: leave it out.")
