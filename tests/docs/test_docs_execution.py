"""Code in the documentation runs: Python on every page, and the commands of step-by-step pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pspo
from examples import energy_storage
from tests.docs.pages import DOCS, OWN_RUN, PAGES, ROOT, blocks, name_of, run_command, run_page

FOLLOWED = [page for name in ("start", "own-data", "ope") if (page := DOCS / f"{name}.md").exists()]
EXPORT = DOCS / "export.md"
WITH_PYTHON = [p for p in PAGES if p not in (EXPORT, *FOLLOWED) and any(b.language == "python" for b in blocks(p))]


def own_table(rows: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """The liquidation dataset as a user would have it: no task name, no next states."""
    data = pspo.load_dataset("liquidation", size=rows, seed=seed)
    columns = {f"obs_{name}": data.obs[:, i] for i, name in enumerate(("steps", "left", "price"))}
    columns |= {"action_sell": data.action[:, 0], "reward": data.reward, "terminal": data.terminal.astype(int)}
    return pd.DataFrame({"episode": np.cumsum(np.append(0, data.episode_end[:-1])), **columns})


@pytest.fixture(scope="module")
def own_data(tmp_path_factory) -> Path:
    """log.csv, a finished run on it, and a later file."""
    folder = tmp_path_factory.mktemp("own")
    own_table().to_csv(folder / "log.csv", index=False)
    own_table(seed=1).to_csv(folder / "later.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_command("pspo train log.csv --quiet")
    assert (folder / OWN_RUN / "policy.safetensors").exists()
    return folder


def _other_names() -> dict[str, Any]:
    """`frame` of data.md: one whose column names are not recognised."""
    log = own_table()
    names = {"obs_steps": "x1", "obs_left": "x2", "obs_price": "x3", "reward": "gain", "episode": "id"}
    return {"pspo": pspo, "frame": log.rename(columns=names).assign(u1=log["action_sell"], u2=log["action_sell"] / 2)}


def _trading() -> dict[str, Any]:
    """runs/trade of discrete.md: a policy with labels."""
    rng = np.random.default_rng(0)
    table = {"episode": np.repeat(np.arange(40), 5), "obs_stock": rng.integers(0, 4, 200)}
    table |= {"obs_price": rng.normal(size=200), "action": rng.choice(["hold", "buy", "sell"], 200)}
    table |= {"reward": rng.normal(size=200), "terminal": np.tile([0, 0, 0, 0, 1], 40)}
    pspo.train(pd.DataFrame(table), "bc", "smoke", settings={"steps": 20}, out="runs/trade")
    return {"pspo": pspo}


SET_UP: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/data.md": _other_names,
    "docs/discrete.md": _trading,
}


@pytest.mark.slow
@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_step_by_step_page_runs(page: Path, own_data: Path, tmp_path: Path, monkeypatch) -> None:
    if page.stem != "start":  # which begins in an empty folder
        shutil.copytree(own_data, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    if page.stem == "own-data":  # whose first command is a script
        energy_storage.write_folder(energy_storage.record(days=40), Path("storage"))
    run_page(page, {}, shell=True)


def test_the_export_page_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pspo.train("liquidation", "bc", preset="smoke", episodes=500, out=OWN_RUN)  # compiled by other tests
    names: dict[str, Any] = {}
    run_page(EXPORT, names, shell=True)
    assert names["action"].shape == (1,)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, SET_UP.get(name_of(page), dict)(), shell=False)


def test_a_failing_command_fails_the_page(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="exit code 2"):
        run_command("pspo check nowhere.csv")


def test_important_pages_are_among_those_that_run() -> None:
    assert {ROOT / "README.md", DOCS / "data.md", DOCS / "api.md"} <= set(WITH_PYTHON)
    assert {page.stem for page in FOLLOWED} >= {"start", "own-data", "ope"}
