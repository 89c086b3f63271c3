"""How to run the same again: the command, and the settings that differ from the preset."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten, setting_word
from pspo.core.errors import UserError
from pspo.data.load import BUILT_IN, READERS, is_name
from pspo.data.readers.d4rl import d4rl_name
from pspo.report.run.contents import Contents
from pspo.runs.command import source_words

DEFAULT_THREADS = 1


def preset_values(contents: Contents) -> dict[str, Any] | None:
    """All settings as the preset alone gives them today; None where this version does not know the preset."""
    facts = contents.facts
    try:
        module = get_algorithm(facts["algo"])
        values = preset(facts["algo"], facts["preset"], facts.get("task"), facts.get("name", ""))
        return flatten(build(module.Config, values))
    except (UserError, KeyError, OSError):
        return None


def changed_settings(contents: Contents) -> dict[str, Any]:
    """What must be set on top of the preset; everything, where the preset is not known."""
    usual = preset_values(contents) or {}
    return {name: value for name, value in contents.settings.items() if name not in usual or usual[name] != value}


def command(contents: Contents) -> list[str]:
    """The command line that starts the same run, quoted for a shell, in pieces that belong together."""
    facts = contents.facts
    pieces = [["pspo", "train", str(facts.get("dataset", "DATASET"))]]
    has_its_task = facts.get("dataset") in BUILT_IN or d4rl_name(str(facts.get("dataset", "")))
    pieces += source_words(facts.get("columns"), None if has_its_task else facts.get("task"))
    pieces += [[f"--{option}", str(facts[option])] for option in ("algo", "preset", "seed") if option in facts]
    if contents.task and facts.get("episodes", contents.task.default_episodes) != contents.task.default_episodes:
        pieces.append(["--episodes", str(facts["episodes"])])
    if contents.manifest.get("threads", DEFAULT_THREADS) != DEFAULT_THREADS:
        pieces.append(["--threads", str(contents.manifest["threads"])])  # another split of a sum has other last bits
    for name, value in changed_settings(contents).items():
        pieces.append(["--set", setting_word(name, value)])
    return [shlex.join(piece) for piece in pieces]


def caveat(contents: Contents) -> str:
    """Why the command may not suffice; empty where it does."""
    source = str(contents.facts.get("dataset", ""))
    if not is_name(source) and Path(source).suffix.lower() not in READERS:
        return f"The data came from memory under the name “{source}”: save them to a file and name that instead."
    if preset_values(contents) is None:
        return "This version of pspo does not know the run’s preset: every setting is spelt out."
    return ""
