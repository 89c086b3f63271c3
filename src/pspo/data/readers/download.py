"""Download a file once: interrupted downloads are resumed, and the file appears only when it is complete and valid."""

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
# What a connection can raise. URLError is an OSError; a bad address is a ValueError.
NETWORK = (OSError, http.client.HTTPException, ValueError)


class Unreachable(Exception):
    """The file cannot be downloaded now; the message says why."""


def download(
    url: str, target: Path, expected: str | None, is_valid: Callable[[Path], bool], stage: str, progress: Progress
) -> None:
    """Write `target`, and its SHA-256 beside it. `expected` is the checksum it must have, if one is known.

    What has arrived is kept in a file that ends in .part, also when this process dies, and only the rest is requested
    next time. After a broken connection the download is resumed as long as that makes progress.
    """
    part = _Part(target.with_name(f"{target.name}.part"))
    previous = -1
    while part.size > previous:
        previous = part.size
        try:
            if _receive(url, part, stage, progress):
                break
        except urllib.error.HTTPError as error:
            error.close()
            raise Unreachable(f"the server answers {error.code}") from None
        except NETWORK as error:
            problem = str(getattr(error, "reason", None) or error or type(error).__name__)
            if part.size <= previous:
                raise Unreachable(problem) from None
    else:
        raise Unreachable(f"the connection broke off after {part.size} of {part.total or 'unknown'} bytes")
    _accept(part, target, expected, is_valid, url)


@dataclass
class _Part:
    """What has arrived so far; beside it the version of the file (ETag) that it belongs to."""

    path: Path
    total: int | None = None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def version_file(self) -> Path:
        return self.path.with_name(f"{self.path.name}.version")

    def version(self) -> str | None:
        """None if it is missing, or not fit for a header: then the part cannot be trusted."""
        version = self.version_file.read_text(errors="replace") if self.version_file.exists() else None
        if version is not None and not (version.isascii() and version.isprintable()):
            self.remove()
            return None
        return version

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.version_file.unlink(missing_ok=True)


def _receive(url: str, part: _Part, stage: str, progress: Progress) -> bool:
    """Receive data over one connection; true if the file is complete then."""
    headers, version = {"User-Agent": "pspo"}, part.version()
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if version:
            headers["If-Range"] = version  # if the version has changed, the server sends the whole file
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not part.size:
            raise
        error.close()  # nothing follows what we have: it is complete, or of another file
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
        if version and not version.startswith("W/"):  # a weak ETag does not identify the bytes
            write_atomic(part.version_file, version)
        _append(response, part, start, stage, progress)
    return part.total is None or part.size == part.total


def _start(response: Any, part: _Part) -> int:
    """Offset of the bytes in the response; a server that ignores Range sends the whole file."""
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


def _accept(part: _Part, target: Path, expected: str | None, is_valid: Callable[[Path], bool], url: str) -> None:
    actual = sha256(part.path)
    if expected and actual != expected:
        part.remove()
        raise UserError(
            f"what {url} sends has the SHA-256 {actual[:16]}... and not {expected[:16]}..., so it was removed: "
            "try again, or use another mirror."
        )
    if not is_valid(part.path):  # some networks answer every request with a login page
        part.remove()
        raise UserError(f"what {url} sends is not what it should be, so it was removed: check address and network.")
    with open(part.path, "rb") as file:
        os.fsync(file.fileno())
    record(target, actual)
    os.replace(part.path, target)
    part.remove()


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(target: Path, checksum: str) -> None:
    """Write the checksum beside the file."""
    write_atomic(_record_of(target), f"{checksum}  {target.name}\n")


def recorded(target: Path) -> str | None:
    """The checksum of the first download, or None; a damaged record is an error."""
    path = _record_of(target)
    if not path.exists():
        return None
    if (checksum := _checksum_in(path.read_text(errors="replace"))) is None:
        raise UserError(
            f"'{path}' holds no SHA-256: remove it to trust '{target.name}' as it is, or both to download it again."
        )
    return checksum


def published(url: str) -> str | None:
    """The checksum that a mirror publishes beside the file, or None."""
    try:
        with urllib.request.urlopen(f"{url}.sha256", timeout=TIMEOUT_SECONDS) as response:
            return _checksum_in(response.read(1000).decode(errors="replace"))
    except NETWORK:
        return None


def _record_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _checksum_in(text: str) -> str | None:
    """The first word, if it is a checksum: some servers answer every request with a page."""
    match = re.match(r"\s*([0-9a-fA-F]{64})\b", text)
    return match[1].lower() if match else None
