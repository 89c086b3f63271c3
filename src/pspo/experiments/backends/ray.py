"""Jobs on Ray: a cluster that is there already, or one that is started on this machine and ends with the command.

All machines must see the folder of the runs, the data and the cache ($PSPO_CACHE) under the same paths: a job whose
worker or machine dies is taken up by another one from its last checkpoint.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from pspo.core.compute import cores
from pspo.core.errors import UserError
from pspo.core.files import cache_folder
from pspo.experiments.backends.processes import last_line
from pspo.experiments.jobs import Ended, Job

RETRIES = 3  # by Ray itself, of a task whose worker or machine died
KNOCK_SECONDS = 10.0
HANDED_OVER = 1000  # jobs that wait at Ray's side; placing them is its business

CARRIED_OVER = ("JAX_", "XLA_", "PSPO_")
"""Beginnings of the environment variables that workers get from the one who asks."""


@dataclass(frozen=True)
class Needs:
    """What one run asks of a machine."""

    threads: int = 1
    gpus: float = 0.0
    gigabytes: float = 0.0


def work(job: Job) -> tuple[int, str]:
    """One job inside a worker of Ray, from where it stands now: a second try finds it further on than the first."""
    import contextlib
    import io

    from pspo.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(job.words())
    return code, said.getvalue()


class OnRay:
    """Ray places, retries and queues; this only hands over and asks."""

    def __init__(self, address: str | None = None, needs: Needs | None = None, at_once: int | None = None) -> None:
        self.ray: Any = _ray()
        self.needs = needs or Needs()
        self.at_once = at_once or HANDED_OVER
        self.own = not self.ray.is_initialized()
        if self.own:
            _connect(self.ray, address)
        self.task = self._task()

    def _task(self) -> Any:
        """One process per job: memory is given back, and threads are counted before JAX is there."""
        asked: dict[str, Any] = {"num_cpus": self.needs.threads, "max_retries": RETRIES, "max_calls": 1}
        if self.needs.gpus:
            asked["num_gpus"] = self.needs.gpus
        if self.needs.gigabytes:
            asked["memory"] = int(self.needs.gigabytes * 2**30)
        # What decides the bits of a result here decides them there.
        environment = {name: value for name, value in os.environ.items() if name.startswith(CARRIED_OVER)}
        environment |= {"NPROC": str(self.needs.threads), "PSPO_CACHE": str(cache_folder().resolve())}
        return self.ray.remote(**asked, runtime_env={"env_vars": environment})(work)

    def room(self, running: int) -> bool:
        return running < self.at_once

    def start(self, job: Job) -> Any:
        return self.task.options(name=job.name).remote(job)

    def ended(self, handle: Any) -> Ended | None:
        ready, _ = self.ray.wait([handle], timeout=0)
        if not ready:
            return None
        try:
            code, said = self.ray.get(handle)
        except self.ray.exceptions.RayTaskError as problem:  # an error of the program, not of the machine
            return Ended(1, last_line(str(problem)))
        except self.ray.exceptions.RayError as problem:
            return Ended(-1, f"Ray lost its worker: {last_line(str(problem))}")
        return Ended(code, last_line(said))

    def stop(self, handle: Any) -> None:
        self.ray.cancel(handle, force=True)

    def close(self) -> None:
        if self.own:
            self.ray.shutdown()


def _ray() -> Any:
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
        _knock(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as problem:
        raise UserError(
            f"no Ray cluster answers at {address} ({last_line(str(problem))}): start one or fix it."
        ) from None


def _knock(address: str) -> None:
    """Ray itself would knock for minutes where nobody is at home."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return  # auto, local: found on this machine or not at all
    if not port.isdigit():
        raise ValueError("an address is HOST:PORT")
    with socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS):
        pass
