"""The device: chosen before JAX is used, and refused before any data are read."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.core import compute
from pspo.core.errors import UserError


@pytest.fixture(autouse=True)
def environment(monkeypatch) -> None:
    for name in ("JAX_PLATFORMS", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "before")


def test_a_gpu_needs_the_extra_before_anything_is_read(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for seeds in ([], ["--seeds", "2"]):
        assert main(["train", "nothing.csv", "--device", "gpu", *seeds, "--out", str(tmp_path / "run")]) == 2
        assert "pip install 'pspo[cuda12]', or --device cpu." in capsys.readouterr().err
    assert os.environ["JAX_PLATFORMS"] == "before"


def test_the_device_is_jax_own_choice_unless_one_is_named(monkeypatch) -> None:
    compute.use_device("auto")
    assert os.environ["JAX_PLATFORMS"] == "before"
    compute.use_device("cpu")
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    compute.use_device("gpu")
    assert (os.environ["JAX_PLATFORMS"], os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]) == ("cuda", "false")


def test_a_device_that_jax_cannot_use_is_one_sentence(monkeypatch) -> None:
    import jax

    def fail() -> None:
        raise RuntimeError("Unable to initialize backend 'cuda':\n no driver")

    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(UserError, match=r"\(Unable to initialize backend 'cuda': no driver\): check the driver"):
        compute.require_device()


@pytest.mark.parametrize("command", ["ope", "select", "inspect"])
def test_estimates_take_a_device_too(command: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main([command, str(tmp_path / "run"), "--device", "gpu"]) == 2
    assert "pip install 'pspo[cuda12]', or --device cpu." in capsys.readouterr().err
