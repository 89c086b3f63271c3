"""Jobs on Ray: on an existing cluster, or on one that is started on this machine for this command.

All machines must see the folder of the runs, the data and the cache ($PSPO_CACHE) under the same paths: when a worker
or its machine dies, another one resumes the job from its last checkpoint. A token in these folders shows before the
work whether they do.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.core.compute import cores
from pspo.core.errors import PROBLEM, UserError
from pspo.core.files import cache_folder
from pspo.experiments.backends.processes import last_line
from pspo.experiments.jobs import Job, JobOutcome, execute

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


def execute_json(job: str, tokens: dict[str, str]) -> tuple[int, str]:
    """One job inside a worker of Ray. A retry resumes from the last checkpoint."""
    if missing := unseen(tokens):
        return PROBLEM, not_shared(missing)
    outcome = execute(Job.from_json(job))
    return outcome.code, outcome.message


def probe_folders(tokens: dict[str, str]) -> str:
    """Inside a worker: one sentence if a folder is not shared."""
    return not_shared(missing) if (missing := unseen(tokens)) else ""


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


def not_shared(folders: Sequence[str]) -> str:
    return (
        f"the machine {socket.gethostname()} does not see the folder {' and '.join(folders)} of this one: share it "
        "with all machines under the same path (NFS or the like), as --out and $PSPO_CACHE."
    )


class RayBackend:
    """Ray places, queues and retries; this submits jobs and polls them."""

    remote = True

    def __init__(
        self, address: str | None = None, resources: Resources | None = None, at_once: int | None = None
    ) -> None:
        self.address = address
        self.resources = resources or Resources()
        self.at_once = at_once or MAX_SUBMITTED
        self.tokens: dict[str, str] = {}

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
        environment |= {"NPROC": str(self.resources.threads), "PSPO_CACHE": str(cache_folder().resolve())}
        return self.ray.remote(**options, runtime_env={"env_vars": environment})(execute_json)

    def has_room(self, running: int) -> bool:
        return running < self.at_once

    def check(self, jobs: Sequence[Job]) -> None:
        """Let every machine of the cluster look for the folder of the runs and the cache."""
        if not jobs:
            return
        folders = os.path.commonpath([job.run.parent for job in jobs]), cache_folder().resolve()
        self.tokens = {str(folder): leave_token(Path(folder)) for folder in folders}
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        probe = self.ray.remote(num_cpus=0, max_retries=0)(probe_folders)
        probes = [probe.options(scheduling_strategy=_on(node)) for node in nodes if len(nodes) > 1]
        for answer in [each.remote(self.tokens) for each in probes]:
            if refusal := self.ray.get(answer):
                raise UserError(refusal)

    def start(self, job: Job) -> Any:
        return self.task.options(name=job.name).remote(job.to_json(), self.tokens)

    def poll(self, handle: Any) -> JobOutcome | None:
        ready, _ = self.ray.wait([handle], timeout=0)
        if not ready:
            return None
        try:
            return JobOutcome(*self.ray.get(handle))
        except self.ray.exceptions.RayTaskError as problem:  # an error of the program, not of the machine
            return JobOutcome(1, last_line(str(problem)))
        except self.ray.exceptions.RayError as problem:
            return JobOutcome(-1, f"Ray lost its worker: {last_line(str(problem))}")

    def stop(self, handle: Any) -> None:
        self.ray.cancel(handle, force=True)


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
        ray.init(address="local", num_cpus=cores(), include_dashboard=False, **quiet)
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
