"""Configurations are frozen dataclasses: defaults < preset < command line; an unknown key is answered with the nearest.

The string under a field is its help text. Fields of a nested dataclass have dotted names: `model.width`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
import textwrap
import typing
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from pspo.core.errors import UserError, unknown_name
from pspo.core.renamed import UNUSED_OF, VALUES, new_setting, removed

C = TypeVar("C")


@dataclass(frozen=True)
class Bounds:
    """Closed interval a number must lie in; used as `Annotated[float, Bounds(0, 1)]`."""

    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Key:
    """One settable value: its dotted name, type, bounds and help."""

    name: str
    kind: Any
    bounds: Bounds | None
    default: Any
    help: str


def keys(cls: type, prefix: str = "", defaults: Any = None) -> dict[str, Key]:
    """All keys of a configuration class, nested ones with dots, in the order of the source.

    `defaults` is an instance whose values replace those of the class: the default of the field that holds it.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    helps = _field_help(cls)
    settable: dict[str, Key] = {}
    for field in dataclasses.fields(cls):
        kind, name = hints[field.name], prefix + field.name
        if dataclasses.is_dataclass(kind):
            settable |= keys(typing.cast(type, kind), name + ".", _given(_default(field, defaults)))
            continue
        bounds = None
        if get_origin(kind) is typing.Annotated:
            kind, bounds = get_args(kind)[:2]
        settable[name] = Key(name, kind, bounds, _default(field, defaults), helps.get(field.name, ""))
    return settable


def _default(field: dataclasses.Field[Any], defaults: Any) -> Any:
    """Of a field: from the instance around it where there is one, else its own."""
    if defaults is not None:
        return getattr(defaults, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _given(default: Any) -> Any:
    return None if default is dataclasses.MISSING else default


@cache
def _field_help(cls: type) -> dict[str, str]:
    """The string literal under each field, in the class or in a base class."""
    helps = {name: text for base in cls.__bases__ if base is not object for name, text in _field_help(base).items()}
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # a class typed into a prompt or a notebook has no source
        return helps
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, body.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                helps[name] = " ".join(text.split())
    return helps


def build(cls: type[C], *layers: dict[str, Any], algo: str = "") -> C:
    """A configuration from dotted keys; later layers win. Strings are converted to the type of the key.

    `algo` is the algorithm that it belongs to: settings that only this one has lost are known as such.
    """
    known = keys(cls)
    values: dict[str, Any] = {}
    for layer in layers:
        _refuse_removed({name: value for name, value in layer.items() if name not in known}, algo)
        for name, value in layer.items():
            if name not in known:
                renamed = new_setting(name, value, of_epq="support_threshold" in known, algo=algo)
                if renamed is None:
                    continue  # a removed setting of an older version, at the value that changes nothing
                if renamed[0] not in known or renamed[0] == name:
                    raise unknown_name("key", name, known)
                warnings.warn(f"{name} is now called {renamed[0]}; the old name works until version 0.3.", stacklevel=2)
                name, value = renamed
            values[name] = _read(known[name], value)
    return _assemble(cls, values, "", None)


def _refuse_removed(settings: dict[str, Any], algo: str) -> None:
    """One sentence on settings of an older version that are gone and would change something."""
    for name, value in settings.items():
        constant = removed(name, algo)
        if constant is not None and new_setting(name, value, algo=algo) is not None:
            raise UserError(
                f"the setting '{name}' is gone: it is always {constant} now, and not {value}; leave it out, or "
                "use the version of pspo that has it."
            )
    for name in settings:
        if name in UNUSED_OF.get(algo, ()):
            raise UserError(f"the setting '{name}' is gone: it had no effect on {algo}; leave it out.")


def _assemble(cls: type[C], values: dict[str, Any], prefix: str, defaults: Any) -> C:
    """The given values; for all others those of `defaults`, if there are any, else those of the class."""
    hints = typing.get_type_hints(cls)
    arguments = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        name, kind = prefix + field.name, hints[field.name]
        own = _default(field, defaults)
        if dataclasses.is_dataclass(kind):
            arguments[field.name] = _assemble(typing.cast(type, kind), values, name + ".", _given(own))
        elif name in values:
            arguments[field.name] = values[name]
        elif defaults is not None:
            arguments[field.name] = own
    return cls(**arguments)


def _read(key: Key, value: Any) -> Any:
    """Convert and check one value; the message says what the key takes."""
    if get_origin(key.kind) is Literal:
        choices = get_args(key.kind)
        value = VALUES.get((key.name.rpartition(".")[2], value), value)
        if value not in choices:
            raise UserError(f"{key.name}={value} is not one of {', '.join(map(str, choices))}.")
        return value
    try:
        value = _convert(key.kind, value)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{key.name}={value} is not {_article(key.kind)}.") from None
    bounds = key.bounds
    if bounds and not bounds.low <= value <= bounds.high:  # also false for NaN
        raise UserError(f"{key.name}={value} is out of range: it must lie between {bounds.low} and {bounds.high}.")
    return value


def _convert(kind: Any, value: Any) -> Any:
    if kind is bool:
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower()) or _false_or_raise(value)
    if kind is int:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)  # so that 1e4 is as good as 10000
        if not number.is_integer():
            raise ValueError
        return int(number)
    if kind is float:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
        if math.isnan(number):
            raise ValueError
        return number
    return kind(value)


def _false_or_raise(value: Any) -> bool:
    if str(value).lower() in ("false", "0"):
        return False
    raise ValueError


def _article(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(kind, str(kind))


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """A configuration as dotted keys: what `config.json` holds."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            flat |= flatten(value, prefix + field.name + ".")
        else:
            flat[prefix + field.name] = value
    return flat


def parse_settings(settings: list[str]) -> dict[str, str]:
    """`key=value` words of the command line."""
    values = {}
    for word in settings:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UserError(f"--set takes key=value, not '{word}'.")
        values[name.strip()] = value.strip()
    return values


def setting_word(name: str, value: Any) -> str:
    """`key=value` as the command line takes it."""
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def without_version(dataset: str) -> str:
    """hopper-medium-v2 is hopper-medium."""
    return re.sub(r"-v\d+$", "", dataset)
