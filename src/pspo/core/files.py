"""Files are written whole or not at all: atomic replacement, and arrays with a checksum.

Arrays are stored as safetensors (never pickle). The header carries a digest of every byte of every array and of the
metadata, so that a truncated or damaged file is detected when it is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError

# What reading a damaged header can raise.
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError)
MAX_DIGITS = 18  # of a whole number in JSON: larger ones do not fit into 64 bits


class Corrupt(Exception):
    """A file that is not what was written; the message says how that shows."""


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write beside the target, flush to disk, then replace: a reader sees the old file or the new one."""
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as problem:
        problem.filename = str(path)  # the name that the user knows; for a full disk there is none
        raise


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove temporary files of `write_atomic` whose process was killed; `name` is a regular expression.

    Only for who holds the lock of these files: those of a living process look the same.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_leftover(path, name):
            path.unlink(missing_ok=True)


def is_leftover(path: Path, name: str) -> bool:
    """Whether it is called like a temporary file of `write_atomic`."""
    return re.fullmatch(rf"\.(?:{name})\.\w{{8}}", path.name) is not None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Atomic replacement for writers that need a path: the block writes a temporary file that then becomes `path`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())[:200].rstrip(".")
        raise UserError(f"cannot write '{path}': {reason}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def require_space(path: Path, size: int) -> None:
    """Check that a file of `size` bytes fits on the disk, for writers that do not survive a full disk."""
    with open(path, "xb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def parse_json(text: str | bytes) -> Any:
    """JSON from outside: whatever is wrong with it is a ValueError, including what Python itself cannot handle."""
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits")
    return int(digits)


def refuse_pipes(path: Path) -> None:
    """Opening a pipe would wait for a writer, for ever if there is none; a device may have no end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError("it is a pipe or a device")


def read_json(path: Path) -> Any:
    """A JSON file of a run directory; a damaged one is a UserError."""
    try:
        refuse_pipes(path)
        return parse_json(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: is {path.parent} a run directory?") from None
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} cannot be read ({one_line(problem)}): restore it or train again.") from None


def one_line(problem: BaseException) -> str:
    """The message of a library's exception, short enough for the middle of a sentence."""
    return " ".join(str(problem).split())[:200].rstrip(".") or type(problem).__name__


def write_arrays(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> None:
    """Write named arrays and metadata (JSON) to one safetensors file with a checksum."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    text = json.dumps(metadata, sort_keys=True)
    # One entry: the format does not fix the order of several, and equal content should give equal bytes.
    seal = json.dumps({"facts": text, "sha256": digest(arrays, text)})
    write_atomic(path, save(arrays, metadata={"pspo": seal}))


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and metadata of a file; raises `Corrupt`."""
    from safetensors import SafetensorError, safe_open

    try:
        refuse_pipes(path)
        with safe_open(path, framework="numpy") as file:
            seal = parse_json((file.metadata() or {}).get("pspo", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if "sha256" not in seal:
            raise Corrupt(f"{path} carries no checksum.")
        if digest(arrays, seal["facts"]) != seal["sha256"]:
            raise Corrupt(f"{path} does not match its checksum.")
        metadata = parse_json(seal["facts"])
    except FileNotFoundError:
        raise
    except (SafetensorError, *DAMAGE) as problem:
        raise Corrupt(f"{path} cannot be read ({one_line(problem)}).") from problem
    if not isinstance(metadata, dict):
        raise Corrupt(f"{path} holds no metadata beside its arrays.")
    return arrays, metadata


def digest(arrays: dict[str, np.ndarray], metadata: str = "") -> str:
    """Hash of every name, type, shape and byte."""
    digest = hashlib.sha256(metadata.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where fitted models, downloads and compiled programs are kept: $PSPO_CACHE, else the user's cache folder."""
    base = os.environ.get("PSPO_CACHE")
    if base:
        return Path(base)
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "pspo"
    try:
        return Path.home() / ".cache" / "pspo"
    except RuntimeError:  # neither $HOME nor an entry in the password file, as in many containers
        return _own_temporary_folder()


def _own_temporary_folder() -> Path:
    """The same for every process of this user, and refused if somebody else has made it."""
    folder = Path(tempfile.gettempdir()) / f"pspo-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise UserError(f"{folder} belongs to somebody else: set PSPO_CACHE to a folder of yours.")
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; other processes wait for it."""
    with open(path, "a") as file:  # not "w", which would empty what the path may link to
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
