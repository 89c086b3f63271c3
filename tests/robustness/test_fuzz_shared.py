"""Damaged files that people share: exported policies with their contracts, and results of experiments."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given

from pspo.cli.main import main
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.report.write import write_reports
from pspo.runs.export import export_policy
from tests.report.made_up_run import threshold_policy
from tests.report.summary_cases import made_up
from tests.robustness.damage import FEW_AND_MANY, bounded, damaged, edited_text, refused_or


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    pytest.importorskip("onnx")
    return export_policy(threshold_policy(), tmp_path / "policy.onnx")


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_a_damaged_graph_is_refused_even_with_the_right_checksum(exported: Path, times: int) -> None:
    contract = json.loads(exported.with_suffix(".json").read_text())
    whole = exported.read_bytes()

    @bounded(60 * times)
    @given(damaged(whole))
    def check(content: bytes) -> None:
        exported.write_bytes(content)
        exported.with_suffix(".json").write_text(json.dumps(contract))
        assert content == whole or refused_or(lambda: OnnxPolicy.load(exported)) is None
        vouched = contract | {"model": contract["model"] | {"sha256": hashlib.sha256(content).hexdigest()}}
        exported.with_suffix(".json").write_text(json.dumps(vouched))
        if policy := refused_or(lambda: OnnxPolicy.load(exported)):
            refused_or(lambda: policy(np.zeros((2, 3))))

    check()


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_an_edited_contract_is_refused_or_fits_its_graph(exported: Path, times: int) -> None:
    beside = exported.with_suffix(".json")
    contract: dict[str, Any] = json.loads(beside.read_text())

    @bounded(60 * times)
    @given(edited_text(contract))
    @example(json.dumps(contract | {"input": {"shape": ["batch", float("inf")]}}))
    @example(json.dumps(contract | {"output": contract["output"] | {"low": [10**400]}}))
    def check(text: str) -> None:
        beside.write_text(text, errors="surrogatepass")
        if policy := refused_or(lambda: OnnxPolicy.load(exported)):
            assert policy(np.zeros((2, 3))).shape == (2, 1)

    check()


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_edited_results_are_shown_or_refused(times: int, tmp_path: Path) -> None:
    place = tmp_path / "results.json"
    whole = dataclasses.asdict(made_up())

    @bounded(5 * times)
    @given(edited_text(whole))
    @example(json.dumps(whole | {"records": [5]}))
    @example(json.dumps(whole | {"datasets": 5}))
    def check(text: str) -> None:
        place.write_text(text, errors="surrogatepass")
        refused_or(lambda: write_reports([tmp_path]))

    check()


def test_every_command_reports_damage_in_one_line_and_exit_code_2(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    for name, content in (("config.json", "[]"), ("policy.safetensors", "x"), ("result.json", "{}")):
        (run / name).write_text(content)
    (tmp_path / "results.json").write_text("[" * 99_999)
    (tmp_path / "log.npz").write_bytes(b"PK\x03\x04")
    for words in (
        ["resume", tmp_path],
        ["evaluate", run],
        ["export", run, tmp_path / "new.onnx"],
        ["ope", run],
        ["select", run, run],
        ["report", run],
        ["report", tmp_path / "results.json"],
        ["check", tmp_path / "log.npz"],
        ["data", "info", tmp_path / "log.npz"],
        ["data", "convert", tmp_path / "log.npz", tmp_path / "log.csv"],
        [
            "collect",
            "hopper-mine",
            "--policy",
            tmp_path / "log.npz",
            "--transitions",
            "10",
            "--out",
            tmp_path / "x.hdf5",
        ],
    ):
        capsys.readouterr()
        assert main(list(map(str, words))) == 2, words
        output = capsys.readouterr()
        lines = (output.err or output.out).strip().splitlines()
        assert len(lines) == 1, words
        assert "Traceback" not in lines[0]
    assert not (tmp_path / "log.csv").exists()
