"""D4RL's files from a server that misbehaves: files in the cache are complete and verified."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import h5py
import pytest

from pspo.core.errors import UserError
from pspo.data import load_dataset
from pspo.data.readers.d4rl import NAMES, d4rl_name
from tests.data.made_up_data import clean_d4rl
from tests.refusals import message_of

NAME, FILE = "hopper-medium-replay-v2", "hopper_medium_replay-v2.hdf5"


@dataclass
class Server:
    """What it has, how it behaves, and what it was asked."""

    files: dict[str, bytes]
    url: str = ""
    cut_after: list[int] = field(default_factory=list)  # bytes that the next answers give before they break off
    ignores_range: bool = False
    tells_length: bool = True
    tag: str | None = '"one"'
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def ranges(self) -> list[str | None]:
        return [wanted for path, wanted in self.asked if not path.endswith(".sha256")]


def handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.rsplit("/", 1)[1], self.headers["Range"]
            server.asked.append((name, wanted))
            if name not in server.files:
                self.send_error(404)
                return
            content = server.files[name]
            same = self.headers["If-Range"] in (None, server.tag)
            start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and same and not server.ignores_range else 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if server.tells_length:
                self.send_header("Content-Length", str(len(content) - start))
            if server.tag:
                self.send_header("ETag", server.tag)
            self.end_headers()
            is_main = not name.endswith(".sha256")
            give = server.cut_after.pop(0) if is_main and server.cut_after else len(content)
            self.wfile.write(content[start : start + give])

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def made(folder: Path, seed: int) -> bytes:
    with h5py.File(folder / "file.hdf5", "w") as file:
        for name, array in clean_d4rl(600, seed).items():
            if not name.startswith("action_"):
                file[name] = array
    return (folder / "file.hdf5").read_bytes()


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    return made(tmp_path_factory.mktemp("d4rl"), seed=0)


@pytest.fixture
def server(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server({FILE: content})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(server))
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}/mirror"
    monkeypatch.setenv("PSPO_D4RL_URL", server.url + "/")
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    yield server
    http.shutdown()
    http.server_close()
    thread.join()


def cached(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "d4rl").iterdir()} - {f"{FILE}.lock"}


def refusal(**options: Any) -> str:
    return message_of(load_dataset, NAME, **options)


def test_a_file_is_downloaded_once(server: Server, content: bytes, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    result = load_dataset(NAME, progress=lambda stage, done, total, _: steps.append((stage, done, total)))
    assert (result.name, result.task, result.size) == (NAME, "hopper", 600)
    assert result.action_low.tolist() == [-1, -1]
    assert steps[-1] == (FILE, 1, 1)
    assert cached(tmp_path) == {FILE, f"{FILE}.sha256"}
    assert (tmp_path / "d4rl" / FILE).read_bytes() == content
    kept = (tmp_path / "d4rl" / f"{FILE}.sha256").read_text()
    assert kept == f"{hashlib.sha256(content).hexdigest()}  {FILE}\n"
    assert load_dataset("hopper-medium-replay").hash == result.hash  # without the version, and without the server
    assert server.ranges() == [None]


def test_a_broken_connection_is_resumed(server: Server, content: bytes, tmp_path: Path) -> None:
    server.cut_after = [len(content) // 2, 1000]
    assert load_dataset(NAME).size == 600
    half = len(content) // 2
    assert server.ranges() == [None, f"bytes={half}-", f"bytes={half + 1000}-"]
    assert (tmp_path / "d4rl" / FILE).read_bytes() == content


def test_a_download_is_resumed_in_another_process(server: Server, content: bytes, tmp_path: Path) -> None:
    server.cut_after = [5000, 0]  # the second connection brings nothing, so this process gives up
    assert "broke off after 5000 of" in refusal()
    assert cached(tmp_path) == {f"{FILE}.part", f"{FILE}.part.version"}
    server.asked.clear()
    assert load_dataset(NAME).size == 600
    assert server.ranges() == ["bytes=5000-"]
    assert cached(tmp_path) == {FILE, f"{FILE}.sha256"}


def test_a_server_that_ignores_range_starts_over(server: Server, content: bytes, tmp_path: Path) -> None:
    server.cut_after, server.ignores_range = [5000], True
    assert load_dataset(NAME).size == 600
    assert (tmp_path / "d4rl" / FILE).read_bytes() == content
    assert len(server.ranges()) == 2


def test_a_server_that_always_breaks_off_is_an_error(server: Server) -> None:
    server.cut_after, server.ignores_range = [5000] * 50, True
    assert "broke off after 5000 of" in refusal()
    assert len(server.ranges()) == 2


def test_a_part_of_another_version_is_not_resumed(server: Server, content: bytes, tmp_path: Path) -> None:
    server.cut_after = [5000, 0]
    refusal()
    other = made(tmp_path, seed=1)
    assert len(other) == len(content)
    assert other[:5000] != content[:5000]
    server.files[FILE], server.tag = other, '"two"'
    assert load_dataset(NAME).size == 600
    assert (tmp_path / "d4rl" / FILE).read_bytes() == other


@pytest.mark.parametrize("stored", ["whole", "too much"])
def test_a_part_that_needs_nothing_more(server: Server, content: bytes, tmp_path: Path, stored: str) -> None:
    """A process that died between the last byte and the renaming; or a part of something else."""
    (tmp_path / "d4rl").mkdir()
    (tmp_path / "d4rl" / f"{FILE}.part").write_bytes(content if stored == "whole" else content + b"more")
    assert load_dataset(NAME).size == 600
    assert (tmp_path / "d4rl" / FILE).read_bytes() == content
    assert len(server.ranges()) == (1 if stored == "whole" else 2)


def test_without_a_length_a_cut_file_is_still_noticed(server: Server, tmp_path: Path) -> None:
    server.cut_after, server.tells_length = [20_000], False
    assert "is not what it should be, so it was removed" in refusal()
    assert cached(tmp_path) == set()


def test_a_page_in_place_of_the_file_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.files[FILE] = b"<html>please log in</html>"
    assert "is not what it should be" in refusal()
    assert cached(tmp_path) == set()


@pytest.mark.parametrize("source", ["mirror", "option"])
def test_a_wrong_checksum_is_refused_and_nothing_is_kept(server: Server, tmp_path: Path, source: str) -> None:
    wrong = "ab" * 32
    if source == "mirror":
        server.files[f"{FILE}.sha256"] = f"{wrong}  {FILE}\n".encode()
    message = refusal(**({"checksums": {NAME: wrong}} if source == "option" else {}))
    assert "and not abababababababab..." in message
    assert cached(tmp_path) == set()


def test_right_checksums_are_accepted(server: Server, content: bytes) -> None:
    right = hashlib.sha256(content).hexdigest()
    server.files[f"{FILE}.sha256"] = f"{right}  {FILE}\n".encode()
    assert load_dataset(NAME, checksums={NAME: right.upper()}).size == 600
    assert load_dataset(NAME, checksums={"hopper-medium-replay": right}).size == 600


def test_a_page_in_place_of_the_checksum_is_no_checksum(server: Server) -> None:
    server.files[f"{FILE}.sha256"] = b"<html>not found, but kindly</html>"
    assert load_dataset(NAME).size == 600


def test_a_file_that_changed_in_the_cache_is_refused_and_left_alone(server: Server, tmp_path: Path) -> None:
    load_dataset(NAME)
    path = tmp_path / "d4rl" / FILE
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    message = refusal()
    assert "damaged or another file" in message
    assert path.read_bytes() == damaged
    path.unlink()
    assert load_dataset(NAME).size == 600  # downloaded again


def test_the_error_for_a_missing_file_says_where_to_put_it(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    message = refusal()
    assert "the server answers 404" in message
    assert f"put {FILE} into {tmp_path / 'd4rl'}" in message
    assert cached(tmp_path) == set()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense", "http://[::1", "file:///nowhere/at/all"])
def test_without_a_server_the_file_can_be_put_there_by_hand(
    address: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PSPO_D4RL_URL", address)
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    assert f"put {FILE} into {tmp_path / 'd4rl'}" in refusal()
    (tmp_path / "d4rl" / FILE).write_bytes(content)
    assert load_dataset(NAME).size == 600
    assert (tmp_path / "d4rl" / f"{FILE}.sha256").exists()


def test_a_folder_can_be_the_mirror(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / FILE).write_bytes(content)
    monkeypatch.setenv("PSPO_D4RL_URL", (tmp_path / "mirror").as_uri())
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    assert load_dataset(NAME).size == 600


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path / "file"))
    assert "cannot write" in refusal()


def _load(_: int) -> str:
    return load_dataset(NAME).hash


def test_two_processes_download_once(server: Server, content: bytes) -> None:
    server.cut_after = [len(content) // 3] * 2
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        hashes = pool.map(_load, range(2), chunksize=1)
    assert hashes[0] == hashes[1]
    assert len(server.ranges()) == 3  # by one of them


def test_the_names() -> None:
    assert len(NAMES) == 18
    assert d4rl_name("walker2d-full-replay") == "walker2d-full-replay-v2"
    assert d4rl_name("hopper-medium-v0") is None
    with pytest.raises(UserError, match="did you mean 'hopper-medium-v2'"):
        load_dataset("hoper-medium-v2")
    with pytest.raises(UserError, match="leave them out"):
        load_dataset(NAME, columns={"obs": "x"})
    with pytest.raises(UserError, match="did you mean 'checksums'"):
        load_dataset(NAME, checksum={})


def test_the_address_is_that_of_d4rl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import urllib.request

    asked = []

    def refuse(request: Any, **_: Any) -> None:
        asked.append(request if isinstance(request, str) else request.full_url)
        raise OSError("no network in a test")

    monkeypatch.delenv("PSPO_D4RL_URL", raising=False)
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    for name in ("hopper-medium-v2", "walker2d-full-replay-v2", "halfcheetah-medium-expert"):
        with pytest.raises(UserError, match="no network in a test"):
            load_dataset(name)
    base = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2"
    files = ["hopper_medium-v2", "walker2d_full_replay-v2", "halfcheetah_medium_expert-v2"]
    assert [url for url in asked if url.endswith("5")] == [f"{base}/{file}.hdf5" for file in files]
    assert os.listdir(tmp_path / "d4rl")
