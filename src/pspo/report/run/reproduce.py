"""How to run the same again: the command, and the settings that differ from the preset."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten, setting_word
from pspo.core.errors import UserError
from pspo.data.load import BUILT_IN, is_name, readable_suffixes
from pspo.data.readers.d4rl import d4rl_name
from pspo.report.run.contents import Contents
from pspo.runs.command import source_words

DEFAULT_THREADS = 1


def preset_values(contents: Contents) -> dict[str, Any] | None:
    """All settings of the preset; None where this version does not know it."""
    config = contents.config
    if not {"algo", "preset"} <= config.keys():
        return None
    try:
        module = get_algorithm(config["algo"])
        kind = bool(config.get("action_labels"))
        values = preset(config["algo"], config["preset"], config.get("task"), config.get("name", ""), kind)
        return flatten(build(module.Config, values))
    except UserError:
        return None


def changed_settings(contents: Contents) -> dict[str, Any]:
    """Settings that differ from the preset; all of them where the preset is not known."""
    of_preset = preset_values(contents) or {}
    return {
        name: value for name, value in contents.settings.items() if name not in of_preset or of_preset[name] != value
    }


def command(contents: Contents) -> list[str]:
    """The command line that starts the same run, quoted for a shell, in pieces that belong together."""
    config = contents.config
    pieces = [["pspo", "train", str(config.get("dataset", "DATASET"))]]
    implies_task = config.get("dataset") in BUILT_IN or d4rl_name(str(config.get("dataset", "")))
    pieces += source_words(config.get("columns"), None if implies_task else config.get("task"))
    if kept := config.get("holdout"):
        pieces.append(["--holdout", str(kept["fraction"]), "--holdout-by", kept["by"]])
    pieces += [[f"--{option}", str(config[option])] for option in ("algo", "preset", "seed") if option in config]
    if contents.task and config.get("episodes", contents.task.default_episodes) != contents.task.default_episodes:
        pieces.append(["--episodes", str(config["episodes"])])
    if contents.manifest.get("threads", DEFAULT_THREADS) != DEFAULT_THREADS:
        pieces.append(
            ["--threads", str(contents.manifest["threads"])]
        )  # sums split differently differ in the last bits
    for name, value in changed_settings(contents).items():
        pieces.append(["--set", setting_word(name, value)])
    return [shlex.join(piece) for piece in pieces]


def caveat(contents: Contents) -> str:
    """Why the command may not be enough; empty where it is."""
    source = str(contents.config.get("dataset", ""))
    readable = is_name(source) or Path(source).suffix.lower() in readable_suffixes() or set(source) & set("*?[,")
    if not readable and not Path(source).exists():
        return f"The dataset was passed from memory under the name “{source}”: save it to a file and name that instead."
    if preset_values(contents) is None:
        return "This version of pspo does not know the run’s preset: every setting is listed."
    return ""
