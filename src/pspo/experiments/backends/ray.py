"""Jobs on Ray: on an existing cluster, or on one that is started on this machine for this command.

No shared disk is needed. A worker looks for a token in the folder of the runs. If it sees it, it works there: when a
worker or its machine dies, another one resumes the job from its last checkpoint. If not, it works on a copy (see
`copies`): the dataset's file and what is stored of the run come through Ray's object store, and so does the result; a
job whose worker dies starts again from there. The cache ($PSPO_CACHE) is that of the machine where it is not shared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.core.compute import cores
from pspo.core.errors import EXPECTED, UserError, exit_code_and_message
from pspo.core.files import cache_folder
from pspo.core.terminal import show_note
from pspo.data.load import columns_with_map
from pspo.experiments.backends.copies import Files, digest_of, execute_copy, files_of, store
from pspo.experiments.backends.processes import last_line
from pspo.experiments.jobs import Job, JobOutcome, execute, write_missing_report

RETRIES = 3  # by Ray itself, of a task whose worker or machine died
CONNECT_SECONDS = 10.0
MAX_SUBMITTED = 1000  # jobs that wait in Ray's queue; Ray places them

TOKEN_FILE = ".pspo-shared"

PASSED_ON = ("JAX_", "XLA_", "PSPO_")
"""Beginnings of the environment variables that workers inherit from this process."""


@dataclass(frozen=True)
class Resources:
    """What one run needs of a machine."""

    threads: int = 1
    gpus: float = 0.0
    gigabytes: float = 0.0


@dataclass(frozen=True)
class Shared:
    """How a worker sees whether it has the folders and the file of the machine that started it."""

    runs: dict[str, str]
    cache: dict[str, str]
    """A folder and its token; empty for a folder that is not to be shared."""
    digest: str = ""
    """Of the dataset's file; empty where it has a name instead."""


def execute_json(text: str, shared: Shared, run: Sequence[Any], data: Sequence[Any]) -> tuple[int, str, Files]:
    """One job inside a worker of Ray: the exit code, a message, and the files of a copy.

    `run` and `data` hold a reference to what a copy needs, or nothing.
    """
    job, (cache,) = Job.from_json(text), shared.cache or ("",)
    if cache and not unseen(shared.cache):
        os.environ["PSPO_CACHE"] = cache
    path = Path(job.request.dataset)
    if shared.runs and not unseen(shared.runs) and (not data or (path.is_file() and digest_of(path) == shared.digest)):
        outcome, files = execute(job), {}
    else:
        outcome, files = execute_copy(job, _content(run) or {}, _content(data))
    return outcome.code, outcome.message, files


def _content(references: Sequence[Any]) -> Any:
    """References in a list are not fetched before they are needed."""
    return _import_ray().get(references[0]) if references else None


# Whether all machines see the same folders


def leave_token(folder: Path) -> str:
    """A random text in a small file of the folder, written once: who reads it there sees the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(folder / TOKEN_FILE, "x") as file:
        file.write(secrets.token_hex(8))
    return (folder / TOKEN_FILE).read_text()


def unseen(tokens: dict[str, str]) -> list[str]:
    """The folders that this machine does not see, or sees otherwise."""
    return [folder for folder, token in tokens.items() if _text_of(Path(folder) / TOKEN_FILE) != token]


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return None


class RayBackend:
    """Ray places, queues and retries; this submits jobs and polls them."""

    remote = True

    def __init__(
        self,
        address: str | None = None,
        resources: Resources | None = None,
        at_once: int | None = None,
        copies: bool = False,
    ) -> None:
        """With `copies`, workers do not even look for the folder of the runs and the cache."""
        self.address = address
        self.resources = resources or Resources()
        self.at_once = at_once or MAX_SUBMITTED
        self.copies = copies
        self.shares_cache = not copies
        self.tokens = Shared({}, {})
        self.data: dict[str, tuple[str, Any]] = {}

    def __enter__(self) -> RayBackend:
        self.ray: Any = _import_ray()
        self.connected_here = not self.ray.is_initialized()
        if self.connected_here:
            _connect(self.ray, self.address)
        self.task = self._task()
        return self

    def __exit__(self, *_: object) -> None:
        if self.connected_here:
            self.ray.shutdown()

    def _task(self) -> Any:
        """One process per job: memory is released, and the number of threads is set before JAX is imported."""
        options: dict[str, Any] = {"num_cpus": self.resources.threads, "max_retries": RETRIES, "max_calls": 1}
        if self.resources.gpus:
            options["num_gpus"] = self.resources.gpus
        if self.resources.gigabytes:
            options["memory"] = int(self.resources.gigabytes * 2**30)
        # Variables that decide the bits of a result here must decide them there.
        environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        environment.pop("PSPO_CACHE", None)  # unless it is shared, each machine has its own
        environment["NPROC"] = str(self.resources.threads)
        return self.ray.remote(**options, runtime_env={"env_vars": environment})(execute_json)

    def has_room(self, running: int) -> bool:
        return running < self.at_once

    def check(self, jobs: Sequence[Job]) -> None:
        """Leave tokens, and find out whether the machines that there are now see them."""
        if not jobs or self.copies:
            return
        runs, cache = os.path.commonpath([job.run.parent for job in jobs]), str(cache_folder().resolve())
        self.tokens = Shared({runs: leave_token(Path(runs))}, {cache: leave_token(Path(cache))})
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        probe = self.ray.remote(num_cpus=0, max_retries=0)(unseen)
        probes = [probe.options(scheduling_strategy=_on(node)) for node in nodes if len(nodes) > 1]
        answers = self.ray.get([each.remote(self.tokens.runs | self.tokens.cache) for each in probes])
        if copies := sum(runs in missing for missing in answers):
            show_note(f"{copies} of {len(nodes)} machines do not see {runs}: their runs are sent through Ray.")
        self.shares_cache = not any(cache in missing for missing in answers)

    def start(self, job: Job) -> tuple[Job, Any]:
        job = _with_columns(job)
        digest, *data = self._data(job.request.dataset)
        run = [self.ray.put(files)] if (files := files_of(job.run)) else []
        shared = dataclasses.replace(self.tokens, digest=digest)
        return job, self.task.options(name=job.name).remote(job.to_json(), shared, run, data)

    def _data(self, dataset: str) -> tuple[str, Any] | tuple[str]:
        """Digest and reference of a dataset's file, put into the object store once."""
        path = Path(dataset)
        if not path.is_absolute() or not path.is_file():
            return ("",)
        if dataset not in self.data:
            self.data[dataset] = digest_of(path), self.ray.put(path.read_bytes())
        return self.data[dataset]

    def poll(self, handle: tuple[Job, Any]) -> JobOutcome | None:
        job, reference = handle
        ready, _ = self.ray.wait([reference], timeout=0)
        if not ready:
            return None
        try:
            code, message, files = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as problem:  # an error of the program, not of the machine
            return JobOutcome(1, last_line(str(problem)))
        except self.ray.exceptions.RayError as problem:
            return JobOutcome(-1, f"Ray lost its worker: {last_line(str(problem))}")
        try:
            store(job.run, files)
            write_missing_report(job)
        except EXPECTED as problem:
            return JobOutcome(*exit_code_and_message(problem))
        return JobOutcome(code, message)

    def stop(self, handle: tuple[Job, Any]) -> None:
        self.ray.cancel(handle[1], force=True)


def _with_columns(job: Job) -> Job:
    """With the entries of the column map beside the file, which a copy does not have beside it."""
    columns, _ = columns_with_map(job.request.dataset, job.request.columns)
    given = {name: list(values) for name, values in columns.given().items()} if columns else None
    return dataclasses.replace(job, request=dataclasses.replace(job.request, columns=given))


def _on(node: dict[str, Any]) -> Any:
    """On this machine of the cluster and no other."""
    from ray.util.scheduling_strategies import (  # pyright: ignore[reportMissingImports]
        NodeAffinitySchedulingStrategy,
    )

    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("--backend ray needs Ray: pip install 'pspo[ray]'.") from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        try:
            ray.init(address="local", num_cpus=cores(), include_dashboard=False, **quiet)
        except Exception as problem:  # Ray raises no narrower one where its own processes start too slowly
            reason = last_line(str(problem)).rstrip(".")
            raise UserError(f"Ray cannot start here ({reason}): try again, or leave --backend ray out.") from None
        return
    try:
        _require_listening(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as problem:
        raise UserError(
            f"no Ray cluster answers at {address} ({last_line(str(problem))}): start one or correct the address."
        ) from None


def _require_listening(address: str) -> None:
    """Ray itself would try for minutes to reach an address where nothing listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return  # auto, local: on this machine or not at all
    if not port.isdigit():
        raise ValueError("an address is HOST:PORT")
    with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
        pass
