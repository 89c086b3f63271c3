"""Algorithms of other packages: registered by a script, or declared by an installed package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pspo
from pspo.algorithms import ALGORITHMS, get_algorithm, get_algorithm_for, preset, register_algorithm, registry
from pspo.algorithms.caution import caution_settings
from pspo.algorithms.contract import missing_names
from pspo.cli.listing import everything
from pspo.cli.main import main
from pspo.core import checkpoint
from pspo.core.config import build, keys
from pspo.data import load_dataset, save_dataset
from pspo.evaluation.density import BEHAVIOURS
from pspo.experiments.declarations import METHODS, get_method
from pspo.training.monitor import SILENT, Monitor, no_message
from tests.examples.example_cases import TINY, install, install_awac, registered

__all__ = ["registered"]

CONTRACT = missing_names(object())  # every name
TITLES = {name: info.title for name, info in ALGORITHMS.items()}


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch) -> Path:
    """A package with the example algorithm, found on the path."""
    folder = tmp_path / "site"
    install_awac(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def bare(name: str, *without: str, **more: object) -> types.ModuleType:
    """A module with every name of the contract, and nothing behind them."""
    module = types.ModuleType(name)
    vars(module).update({part: object() for part in CONTRACT if part not in without} | more)
    return module


# Registered by a script


def test_a_module_and_its_name_can_be_registered() -> None:
    register_algorithm("awac", "examples.awac")
    assert get_algorithm("awac").__name__ == "examples.awac"
    pspo.register_algorithm("awac", get_algorithm("awac"))  # a cell that is run twice
    assert everything()["algorithms"] == TITLES | {"awac": "from examples.awac (registered)"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_built_in_name_cannot_be_taken(name: str) -> None:
    with pytest.raises(pspo.UserError, match=f"'{name}' is the name of a built-in algorithm: register yours under"):
        register_algorithm(name, bare("mine"))
    assert get_algorithm(name).__name__ == ALGORITHMS[name].module


def test_a_name_taken_by_another_module_is_refused() -> None:
    register_algorithm("mine", bare("mine"))
    with pytest.raises(pspo.UserError, match="'mine' is registered already, as mine: choose another name"):
        register_algorithm("mine", bare("yours"))


@pytest.mark.parametrize("name", ["", "a b", "../up", "a.b"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(pspo.UserError, match="is no name for an algorithm"):
        register_algorithm(name, bare("mine"))


@pytest.mark.parametrize("part", CONTRACT)
def test_the_message_names_what_a_module_lacks(part: str) -> None:
    with pytest.raises(pspo.UserError, match=rf"mine is no algorithm: it lacks {part} \("):
        register_algorithm("mine", bare("mine", part))


def test_an_object_that_is_no_module_is_refused() -> None:
    with pytest.raises(pspo.UserError, match="5 is no algorithm: it lacks Config"):
        register_algorithm("mine", 5)  # pyright: ignore[reportArgumentType]


def test_a_module_that_cannot_be_imported_is_a_user_error() -> None:
    with pytest.raises(pspo.UserError, match=r"no_such_module cannot be imported \(No module named"):
        register_algorithm("mine", "no_such_module")


# Presets


def test_without_presets_laptop_is_the_defaults_and_smoke_is_short() -> None:
    register_algorithm("mine", bare("mine", Config=get_algorithm("bc").Config))
    cls = get_algorithm("mine").Config
    assert build(cls, preset("mine", "laptop", "liquidation")) == cls()
    assert build(cls, preset("mine", "smoke", None)).steps < 100
    with pytest.raises(pspo.UserError, match="unknown preset 'paper'"):
        preset("mine", "paper", None)


def test_a_module_brings_its_own_presets() -> None:
    own = {"laptop": {"common": {"steps": 7}, "liquidation": {"gamma": 1.0}}, "paper": {"common": {"steps": 9}}}
    register_algorithm("mine", bare("mine", PRESETS=own))
    assert preset("mine", "laptop", None) == {"steps": 7}
    assert preset("mine", "laptop", "liquidation") == {"steps": 7, "gamma": 1.0}
    assert preset("mine", "paper", "hopper") == {"steps": 9}
    assert preset("mine", "smoke", None)["steps"] < 100  # as if it had none


# Optional names


def test_a_module_says_which_settings_caution_changes() -> None:
    config = get_algorithm("bc").Config
    register_algorithm("mine", bare("mine", Config=config, CAUTION={"lr": -1}))
    assert caution_settings("mine", config(lr=0.03), "high") == {"lr": pytest.approx(0.01)}
    assert caution_settings("mine", config(lr=0.03), "low") == {"lr": pytest.approx(0.09)}
    register_algorithm("plain", bare("plain", Config=config))
    with pytest.raises(pspo.UserError, match="'plain' has no setting for caution=high"):
        caution_settings("plain", config(), "high")


def test_a_module_learns_discrete_actions_only_if_it_says_so() -> None:
    size, zeros = 8, np.zeros(8, bool)
    data = pspo.Dataset(
        obs=np.zeros((size, 1), np.float32),
        action=np.arange(size, dtype=np.float32)[:, None] % 2,
        reward=np.zeros(size, np.float32),
        next_obs=np.zeros((size, 1), np.float32),
        terminal=zeros,
        timeout=zeros,
        action_low=np.zeros(1, np.float32),
        action_high=np.ones(1, np.float32),
        action_labels=("a", "b"),
    )
    register_algorithm("mine", bare("mine", DISCRETE=True))
    register_algorithm("plain", bare("plain"))
    assert get_algorithm_for(data, "mine").__name__ == "mine"
    with pytest.raises(pspo.UserError, match="plain cannot learn discrete actions"):
        get_algorithm_for(data, "plain")


def test_a_config_without_source_has_keys_without_help(monkeypatch) -> None:
    typed = types.ModuleType("typed")
    monkeypatch.setitem(sys.modules, "typed", typed)
    lines = ["from dataclasses import dataclass", "@dataclass(frozen=True)", "class Config:", "    lr: float = 0.5"]
    exec("\n".join(lines), vars(typed))
    (key,) = keys(typed.Config).values()
    assert (key.name, key.default, key.help) == ("lr", 0.5, "")


# A run from end to end


class Stop(Exception):
    """Raised in the middle of a run."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """`whole` was never stopped; `stopped` was after two of three chunks, each with a checkpoint."""
    folder = tmp_path_factory.mktemp("awac")
    log = folder / "log.npz"
    save_dataset(replace(load_dataset("liquidation", size=3000), task=None), log)

    def stop(phase: str, step: int, *_: object) -> None:
        if phase == "training" and step == 40:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {})
        patch.setattr(checkpoint, "pause_after", lambda _: -1.0)
        register_algorithm("awac", "examples.awac")
        pspo.train(log, "awac", preset="smoke", out=folder / "whole", monitor=SILENT)
        with pytest.raises(Stop):
            pspo.train(log, "awac", preset="smoke", out=folder / "stopped", monitor=Monitor(stop, no_message))
    return folder


@pytest.fixture
def whole(runs: Path) -> Path:
    return runs / "whole"


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "stopped", tmp_path / "stopped"))


def assert_same(run: Path, other: Path) -> None:
    for name in ("policy.safetensors", "metrics.jsonl", "config.json"):
        assert (run / name).read_bytes() == (other / name).read_bytes()


def test_a_stopped_run_resumes_bit_for_bit(whole: Path, stopped: Path, registered) -> None:
    messages: list[str] = []
    pspo.resume(stopped, monitor=Monitor(message=messages.append))
    assert "resuming at iteration 40" in messages
    assert_same(stopped, whole)


def test_resuming_without_the_algorithm_names_what_to_install(stopped: Path, capsys) -> None:
    before = sorted(stopped.rglob("*"))
    assert main(["resume", str(stopped), "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "'awac' came from examples.awac (registered), which is not installed: install its package" in err
    assert "pspo.register_algorithm('awac', ...)" in err
    assert sorted(stopped.rglob("*")) == before


def test_a_run_never_decides_what_is_imported(stopped: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, key in (("config", "algo"), ("manifest", "algorithm")):
        path = stopped / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: "planted"}))
    assert main(["resume", str(stopped), "--quiet"]) == 2
    assert "planted" in capsys.readouterr().err
    assert "planted" not in sys.modules


def test_a_finished_run_is_usable_without_its_algorithm(whole: Path, tmp_path: Path, capsys) -> None:
    """Evaluation, report, off-policy evaluation and export, in a process where awac is not registered."""
    with pytest.raises(pspo.UserError, match="unknown algorithm 'awac'"):
        get_algorithm("awac")
    assert pspo.evaluate(whole, episodes=200, task="liquidation").episodes == 200
    assert main(["report", str(whole)]) == 0
    page = (whole / "report.html").read_text()
    assert "examples.awac (registered)" in page
    assert "diagnostics.safetensors" not in page  # nothing is missing: it has no posterior
    estimated = pspo.estimate_return(whole, methods=("importance",), behaviour=BEHAVIOURS["liquidation"])
    assert estimated.estimates[0].low <= estimated.estimates[0].high
    pspo.export_policy(whole, tmp_path / "policy.onnx")
    obs = pspo.load_dataset("liquidation", size=100).obs
    exported = pspo.OnnxPolicy.load(tmp_path / "policy.onnx")(obs)
    np.testing.assert_allclose(exported, pspo.load_policy(whole)(obs), atol=2e-5)
    assert np.ptp(exported) > 0


# Declared by an installed package


def test_an_installed_algorithm_is_listed_and_explained(installed: Path, capsys) -> None:
    assert main(["list"]) == 0
    assert "from offline_extras.awac of offline-extras 1.2" in capsys.readouterr().out
    assert "offline_extras" not in sys.modules  # listing imports nothing
    assert main(["config", "--algo", "awac", "--task", "liquidation"]) == 0
    out = capsys.readouterr().out
    assert "components=4\n    Gaussians in the policy's mixture." in out
    assert "gamma=1.0\n" in out


def test_an_installed_algorithm_resumes_a_run_of_the_registered_one(installed: Path, whole, stopped) -> None:
    assert main(["resume", str(stopped), "--quiet"]) == 0
    assert_same(stopped, whole)


@pytest.mark.slow
def test_the_command_line_trains_an_installed_algorithm(installed: Path, runs: Path, tmp_path: Path) -> None:
    """In its own process, as for a user; bit for bit the run of the registered one."""
    words = ["train", str(runs / "log.npz"), "--algo", "awac", *TINY, "--out", str(tmp_path / "run")]
    env = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "-m", "pspo", *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["algorithm"] == "offline_extras.awac of offline-extras 1.2"
    assert_same(tmp_path / "run", runs / "whole")


def test_experiments_take_an_installed_algorithm_by_name(installed: Path) -> None:
    assert get_method("awac").algo == "awac"
    assert get_method("cql") is METHODS["cql"]
    with pytest.raises(pspo.UserError, match="unknown method 'awec': did you mean 'awac'"):
        get_method("awec")


def test_a_misspelt_name_suggests_an_installed_algorithm(installed: Path) -> None:
    with pytest.raises(pspo.UserError, match="unknown algorithm 'awacc': did you mean 'awac'"):
        get_algorithm("awacc")


def test_a_package_cannot_shadow_a_built_in_algorithm(tmp_path: Path, monkeypatch, capsys) -> None:
    install(tmp_path, "impostor", {"cql": "impostor.cql"})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert get_algorithm("cql").__name__ == "pspo.algorithms.cql.algorithm"
    assert main(["list", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["algorithms"] == TITLES
    assert printed.err == (
        "pspo: warning: impostor.cql of impostor 1.2 offers 'cql', the name of a built-in algorithm: "
        "the built-in one is used.\n"
    )


def test_two_packages_with_the_same_algorithm_name_are_refused(installed: Path, tmp_path, monkeypatch) -> None:
    install(tmp_path / "other", "second", {"awac": "second.awac"})
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    with pytest.raises(pspo.UserError, match=r"'awac' is offered by .*second.*: uninstall all but one"):
        get_algorithm("awac")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("\nx = 1 / 0\n", r"\(ZeroDivisionError: division by zero, .*fragile\.py line 2\)"),
        ("def f(:\n", r"\(SyntaxError: "),
        ("raise SystemExit(3)\n", r"\(SystemExit: 3, .*fragile\.py line 1\)"),
        ("raise RuntimeError('a\\nb')\n", r"\(RuntimeError: a b, "),
    ],
)
def test_an_algorithm_that_fails_at_import_is_one_sentence(source, says, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "fragile.py").write_text(source)
    install(tmp_path, "fragile", {"fragile": "fragile"})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "fragile", raising=False)
    assert main(["train", "liquidation", "--algo", "fragile", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert re.search(r"the module fragile fails when it is imported " + says, error), error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_registered_algorithm_replaces_an_installed_one(installed: Path) -> None:
    assert get_algorithm("awac").__name__ == "offline_extras.awac"
    register_algorithm("awac", "examples.awac")
    assert get_algorithm("awac").__name__ == "examples.awac"


def test_broken_installed_algorithms_are_user_errors(tmp_path: Path, monkeypatch) -> None:
    install(tmp_path, "broken", {"gone": "broken.gone", "json": "json"})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(pspo.UserError, match=r"broken\.gone cannot be imported"):
        get_algorithm("gone")
    with pytest.raises(pspo.UserError, match="json is no algorithm: it lacks Config, HEADLINE"):
        get_algorithm("json")
