"""Ray: a grid on two workers, one of them killed while it runs, ends with the numbers of the local backend."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pspo.cli.main import main
from pspo.data import load_dataset, save_dataset
from pspo.experiments.backends import ray as ray_backend
from pspo.experiments.backends.copies import digest_of
from pspo.experiments.backends.ray import TOKEN_FILE, RayBackend, Shared, execute_json, leave_token, unseen
from pspo.experiments.experiment import ExperimentRequest, run_experiment
from pspo.experiments.jobs import Job
from pspo.training.monitor import SILENT
from pspo.training.request import TrainRequest
from tests.experiments.grids import SETTINGS, checkpointed, finish, outcome, start, wait_for

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pspo[ray]'")


def workers_of(job: str) -> list[int]:
    """Processes of Ray that run a task of that name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if words.startswith("ray::") and job in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.slow  # half a minute, most of it Ray's own
@pytest.mark.skipif(not Path("/proc").exists(), reason="workers are found through /proc")
def test_a_killed_ray_worker_changes_no_number(tmp_path: Path):
    local, on_ray = tmp_path / "local", tmp_path / "ray"
    code, _, errors = finish(start(local))
    assert code == 0, errors
    process = start(on_ray, "--backend", "ray")
    try:
        (run, *_) = wait_for(lambda: checkpointed(on_ray), process)
        (worker, *_) = workers_of(f"liquidation bc {run.name.replace('-', ' ')}")
        os.kill(worker, signal.SIGKILL)
        assert not (run / "result.json").exists()
        code, _, errors = finish(process)
    finally:
        process.kill()
    assert code == 0, errors
    assert outcome(on_ray) == outcome(local)


def test_a_machine_that_does_not_see_a_folder_is_noticed(tmp_path: Path):
    shared, other = tmp_path / "shared", tmp_path / "other"
    tokens = {str(folder): leave_token(folder) for folder in (shared, other)}
    assert tokens == {str(folder): leave_token(folder) for folder in (shared, other)}  # written once
    assert unseen(tokens) == []
    (other / TOKEN_FILE).write_text("of another machine")
    assert unseen(tokens) == [str(other)]
    shutil.rmtree(shared)
    assert unseen(tokens) == [str(shared), str(other)]


@pytest.fixture
def work(tmp_path: Path) -> Job:
    """On a file: three steps of behaviour cloning."""
    path = save_dataset(load_dataset("liquidation", size=300), tmp_path / "liquidation-own.npz")
    settings = {"steps": 3, "chunk": 3, "evaluate_every": 3, "evaluate_episodes": 10}
    request = TrainRequest(str(path), "bc", "smoke", 0, settings, task="liquidation", episodes=20)
    return Job("a", request, tmp_path / "runs" / "seed-0")


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a worker asks of the object store."""
    asked: list[Any] = []
    monkeypatch.setattr(ray_backend, "_content", lambda references: asked.extend(references) or asked[-1])
    monkeypatch.setenv("PSPO_CACHE", os.environ["PSPO_CACHE"])  # put back what a worker sets
    return asked


@pytest.mark.parametrize("what", ["another folder", "other data"])
def test_a_worker_that_does_not_see_what_it_needs_works_on_a_copy(work: Job, contents, tmp_path: Path, what: str):
    path = Path(work.request.dataset)
    data, digest = path.read_bytes(), digest_of(path)
    tokens = {str(tmp_path): leave_token(tmp_path)}
    path.write_bytes(b"other data")
    if what == "another folder":
        path.write_bytes(data)
        (tmp_path / TOKEN_FILE).write_text("of another machine")
    code, message, files = execute_json(work.to_json(), Shared(tokens, {}, digest), [{}], [data])
    assert (code, message) == (0, "")
    assert not work.run.exists()
    assert json.loads(files["config.json"])["dataset"] == str(path)
    assert "policy.safetensors" in files


def test_a_worker_that_sees_everything_works_in_place(work: Job, contents, tmp_path: Path):
    path, cache = Path(work.request.dataset), tmp_path / "cache"
    shared = Shared({str(tmp_path): leave_token(tmp_path)}, {str(cache): leave_token(cache)}, digest_of(path))
    assert execute_json(work.to_json(), shared, ["run"], ["data"]) == (0, "", {})
    assert contents == []
    assert work.finished
    assert os.environ["PSPO_CACHE"] == str(cache)


def test_a_ray_that_does_not_start_is_one_sentence(tmp_path: Path, monkeypatch, capsys):
    def fail(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", fail)
    words = ["experiment", "table2", "--methods", "bc", "--backend", "ray", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "Ray cannot start here (The current node timed out during startup): try" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_address_without_a_cluster_is_one_sentence(tmp_path: Path, capsys):
    words = ["experiment", "table2", "--methods", "bc", "--backend", "ray", "--address", "127.0.0.1:1"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip()
    assert "no Ray cluster answers at 127.0.0.1:1" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_existing_cluster_is_used_and_left_running(tmp_path: Path):
    ray = pytest.importorskip("ray")
    cluster = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        words = ["--backend", "ray", "--address", cluster.address_info["gcs_address"], "--memory", "0.5"]
        code, _, errors = finish(start(tmp_path, *words))
        assert code == 0, errors
        assert len(outcome(tmp_path)["policies"]) == 2
        assert ray.is_initialized()
        assert ray.cluster_resources()["CPU"] == 2
    finally:
        ray.shutdown()


@pytest.mark.slow  # a minute
@pytest.mark.skipif(not Path("/proc").exists(), reason="workers are found through /proc")
def test_a_cluster_without_a_shared_folder_that_loses_a_machine_changes_no_number(tmp_path: Path):
    """As with an autoscaler: only the head is there, without a core, when the runs are submitted. Two machines with one
    core join; one is lost while both train, and the other one does its run, too."""
    from ray.cluster_utils import Cluster

    code, _, errors = finish(start(tmp_path / "local"))
    assert code == 0, errors
    # Its hooks for the end of the process are signal handlers, with which no machine could join from a thread.
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
    try:
        out, lost = tmp_path / "ray", threading.Event()

        def join_and_lose_a_machine() -> None:
            time.sleep(2.0)  # the runs wait
            machines = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
            until = time.monotonic() + 240
            while len(workers_of("liquidation bc seed")) < 2 and time.monotonic() < until:
                time.sleep(0.2)
            time.sleep(3.0)  # in the middle of training
            if not list(out.glob("runs/*/*/*/*")):  # nothing is there before a run has ended
                cluster.remove_node(machines[1], allow_graceful=False)
                lost.set()

        threading.Thread(target=join_and_lose_a_machine, daemon=True).start()
        request = ExperimentRequest(
            "table2", "smoke", seeds=2, methods=["bc"], out=out, episodes=200, settings=dict(SETTINGS)
        )
        run_experiment(request, backend=RayBackend(cluster.address, copies=True), monitor=SILENT)
        assert lost.is_set()
    finally:
        cluster.shutdown()
    assert outcome(out) == outcome(tmp_path / "local")
    for report in out.glob("runs/*/*/*/report.html"):
        assert "pspo-run-" not in report.read_text()
    assert not any(path.name == TOKEN_FILE for path in out.rglob("*"))


def test_the_cluster_of_the_docs_is_one_that_ray_accepts():
    """The YAML of docs/experiments.md, by Ray's own schema; nothing is started."""
    import yaml
    from ray.autoscaler._private.util import validate_config

    page = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()
    config = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    config["cluster_synced_files"] = []  # which `ray up` adds
    validate_config(config)
    assert "pip install 'pspo[ray]'" in config["setup_commands"]
    assert config["available_node_types"][config["head_node_type"]]["resources"] == {"CPU": 0}
    with pytest.raises(Exception, match="worker_types"):
        validate_config(config | {"worker_types": 1})
