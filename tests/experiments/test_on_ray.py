"""Ray: a grid on two workers, one of them killed while it runs, ends with the numbers of the local backend."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.experiments.backends.ray import TOKEN_FILE, execute_json, leave_token, probe_folders, unseen
from tests.experiments.grids import checkpointed, finish, outcome, start, wait_for

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


def test_a_worker_that_does_not_see_the_folders_refuses_the_job(tmp_path: Path):
    shared, other = tmp_path / "shared", tmp_path / "other"
    tokens = {str(folder): leave_token(folder) for folder in (shared, other)}
    assert tokens == {str(folder): leave_token(folder) for folder in (shared, other)}  # written once
    assert unseen(tokens) == []
    assert probe_folders(tokens) == ""
    (other / TOKEN_FILE).write_text("of another machine")
    assert unseen(tokens) == [str(other)]
    shutil.rmtree(shared)
    code, message = execute_json("not even read", tokens)
    assert code == 2
    assert f"does not see the folder {shared} and {other}" in message
    assert "share it" in message


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
