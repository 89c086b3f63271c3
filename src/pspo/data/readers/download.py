"""Download a file once: it goes on where it stopped, and is only there when it is whole and as expected."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import write_atomic
from pspo.core.progress import Progress

TIMEOUT_SECONDS = 30
BLOCK = 1 << 20
# What a connection can do to us. URLError is an OSError; a bad address is a ValueError.
NETWORK = (OSError, http.client.HTTPException, ValueError)


class Unreachable(Exception):
    """The file cannot be had from there now; the message says why."""


def download(
    url: str, target: Path, expected: str | None, is_right: Callable[[Path], bool], stage: str, progress: Progress
) -> None:
    """`target` and beside it its SHA-256. `expected` is the checksum it must have, if one is known.

    What has arrived is kept in a neighbour that ends in .part, also when this process dies, and the rest is asked for
    next time. A connection that breaks is taken up again for as long as that brings the file further.
    """
    part = _Part(target.with_name(f"{target.name}.part"))
    furthest = -1
    while part.size > furthest:
        furthest = part.size
        try:
            if _receive(url, part, stage, progress):
                break
        except urllib.error.HTTPError as error:
            error.close()
            raise Unreachable(f"the server answers {error.code}") from None
        except NETWORK as error:
            problem = str(getattr(error, "reason", None) or error or type(error).__name__)
            if part.size <= furthest:
                raise Unreachable(problem) from None
    else:
        raise Unreachable(f"the connection broke off after {part.size} of {part.total or 'unknown'} bytes")
    _accept(part, target, expected, is_right, url)


@dataclass
class _Part:
    """What has arrived so far; beside it the server's mark of the version that it is a part of."""

    path: Path
    total: int | None = None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def mark(self) -> Path:
        return self.path.with_name(f"{self.path.name}.version")

    def version(self) -> str | None:
        """None where there is none, or where it cannot be told to a server: then nothing vouches for the part."""
        found = self.mark.read_text(errors="replace") if self.mark.exists() else None
        if found is not None and not (found.isascii() and found.isprintable()):
            self.remove()
            return None
        return found

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)


def _receive(url: str, part: _Part, stage: str, progress: Progress) -> bool:
    """Take what one connection gives; true if that completes the file."""
    headers, version = {"User-Agent": "pspo"}, part.version()
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if version:
            headers["If-Range"] = version  # another version is sent from its start
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not part.size:
            raise
        error.close()  # there is nothing after what we have: either it is all, or it is not of this file
        if error.headers.get("Content-Range") == f"bytes */{part.size}":
            return True
        part.remove()
        return _receive(url, part, stage, progress)
    with response:
        start = _start(response, part)
        part.total = (
            None if response.headers["Content-Length"] is None else start + int(response.headers["Content-Length"])
        )
        version = response.headers["ETag"] or response.headers["Last-Modified"]
        if version and not version.startswith("W/"):  # a weak mark does not vouch for the bytes
            write_atomic(part.mark, version)
        _append(response, part, start, stage, progress)
    return part.total is None or part.size == part.total


def _start(response: Any, part: _Part) -> int:
    """Where the sent bytes belong; a server that ignores the wish for the rest sends all."""
    sent = re.match(r"bytes (\d+)-", response.headers["Content-Range"] or "") if response.status == 206 else None
    if sent and int(sent[1]) == part.size:
        return part.size
    part.remove()
    if response.status == 206:
        raise ConnectionError("the server sends another part of the file than was asked for")
    return 0


def _append(response: Any, part: _Part, start: int, stage: str, progress: Progress) -> None:
    done, megabyte = start, 1 << 20
    while block := response.read(BLOCK):
        try:
            with open(part.path, "ab") as file:
                file.write(block)
        except OSError as error:
            raise UserError(f"cannot write '{part.path}': {error.strerror}.") from None
        done += len(block)
        total = -(-max(done, part.total or 0) // megabyte)
        progress(stage, total if done == part.total else done // megabyte, total, {})


def _accept(part: _Part, target: Path, expected: str | None, is_right: Callable[[Path], bool], url: str) -> None:
    found = sha256(part.path)
    if expected and found != expected:
        part.remove()
        raise UserError(
            f"what {url} sends has the SHA-256 {found[:16]}... and not {expected[:16]}..., so it was removed: "
            "try again, or use another mirror."
        )
    if not is_right(part.path):  # some networks answer any address with a page of their own
        part.remove()
        raise UserError(f"what {url} sends is not what it should be, so it was removed: check address and network.")
    with open(part.path, "rb") as file:
        os.fsync(file.fileno())
    record(target, found)
    os.replace(part.path, target)
    part.remove()


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(target: Path, checksum: str) -> None:
    write_atomic(_record_of(target), f"{checksum}  {target.name}\n")


def recorded(target: Path) -> str | None:
    """The checksum of the first download; None where there was none. A record that says nothing is no licence."""
    path = _record_of(target)
    if not path.exists():
        return None
    if (found := _checksum_in(path.read_text(errors="replace"))) is None:
        raise UserError(
            f"'{path}' holds no SHA-256: remove it to trust '{target.name}' as it is, or both to get it anew."
        )
    return found


def published(url: str) -> str | None:
    """The checksum that a mirror keeps beside the file, if it does."""
    try:
        with urllib.request.urlopen(f"{url}.sha256", timeout=TIMEOUT_SECONDS) as response:
            return _checksum_in(response.read(1000).decode(errors="replace"))
    except NETWORK:
        return None


def _record_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _checksum_in(text: str) -> str | None:
    """The first word, if it is a checksum: some servers answer every question with a page."""
    found = re.match(r"\s*([0-9a-fA-F]{64})\b", text)
    return found[1].lower() if found else None
