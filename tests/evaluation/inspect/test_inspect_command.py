"""`pspo inspect` from end to end: text, JSON, figures, and bad input in one sentence."""

from __future__ import annotations

import dataclasses
import json
import shutil
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import pspo
from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.evaluation.inspect import inspection
from pspo.evaluation.inspect.figure import write_figure
from pspo.evaluation.inspect.print_inspection import print_inspection
from pspo.evaluation.inspect.state_query import StateQuery, figure_name, make_query
from tests.evaluation.inspect.inspect_cases import COLUMNS, ROW
from tests.refusals import one_sentence

PNG = b"\x89PNG\r\n\x1a\n"


def without_row(found: dict) -> dict:
    """Without what only a row has."""
    found = json.loads(json.dumps(found))
    for name in ("row", "row_of", "logged", "figure"):
        found.pop(name, None)
    found["values"]["marks"] = [mark for mark in found["values"]["marks"] if mark["name"] != "logged"]
    for column in found["models"]["columns"]:
        column |= {"observed": None, "expected_after_logged": None, "std_after_logged": None}
    found["verdict"] = [s for s in found["verdict"] if "outcome" not in s and "No warning" not in s]
    return found


def test_a_state_gives_the_same_json_as_the_row_with_its_values(runs, inspected, capsys) -> None:
    by_row = inspected["pspo"].found
    words = ",".join(str(x) for x in inspected["pspo"].obs)
    assert main(["inspect", str(runs / "pspo"), "--state", words, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert without_row(found) == without_row(by_row.as_dict())
    assert found["row"] is None
    assert found["evaluated_with"] == inspection.OWN
    assert found["figure"] == str(runs / "pspo" / f"inspect-state-{words.replace(',', '_')}.png")
    picture = (runs / "pspo" / found["figure"]).read_bytes()
    assert picture.startswith(PNG)
    assert int.from_bytes(picture[16:20], "big") == 1200  # pixels wide


@pytest.mark.slow
def test_text_and_svg_of_a_negative_state(runs, tmp_path, capsys) -> None:
    out = tmp_path / "state.svg"
    assert main(["inspect", str(runs / "td3bc"), "--state", "-1.5,2,30", "--out", str(out), "--quiet"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert inspection.FITTED in text
    assert "speed -1.5" in text
    assert "heat 30 outside" in text
    assert "The state lies outside the range of the data: heat is 30 (data: 0 to 8)." in text
    assert "valve" in text
    assert "fan" in text
    assert "none" in text  # the policy is deterministic
    assert f"figure: {out}" in text
    drawn = out.read_text()
    assert drawn.rstrip().endswith("</svg>")
    for words in ("valve", "fan", "weight P(T|E)", "percentile in the dataset", "heat"):
        assert words in drawn


def test_text_of_a_row_shows_the_logged_action_and_outcome(inspected, capsys) -> None:
    found = inspected["pspo"].found
    print_inspection(found)
    text = " ".join(capsys.readouterr().out.split())
    assert f"in row {ROW} of table" in text
    assert "heat" in text
    assert "valve" in text
    assert f"The return from here in the dataset was {found.logged.return_to_go:.4g}" in text
    assert "The episode continued." in text
    assert "effective of 4 models" in text
    for sentence in found.verdict:
        assert sentence in text


def test_a_png_of_two_action_columns(inspected, tmp_path) -> None:
    path = write_figure(inspected["pspo"].found, tmp_path / "two.png")
    assert path.read_bytes().startswith(PNG)


def test_names_of_columns_are_text_not_markup(inspected, tmp_path, capsys) -> None:
    found, name = inspected["pspo"].found, "obs_$x^$ [/no] \x1b[31m"
    named = lambda columns: [column._replace(name=name) for column in columns]  # noqa: E731
    hostile = found._replace(
        data=name,
        row_of=name,
        coverage=found.coverage._replace(columns=named(found.coverage.columns)),
        action=found.action._replace(columns=named(found.action.columns)),
        values=found.values._replace(curves=named(found.values.curves)),
        models=found.models._replace(columns=[*named(found.models.columns[:-1]), found.models.columns[-1]]),
    )
    print_inspection(hostile)
    shown = capsys.readouterr().out
    assert "obs_$x^$ [/no] \\x1b[31m" in shown
    assert "\x1b" not in shown
    drawn = ElementTree.fromstring(write_figure(hostile, tmp_path / "hostile.svg").read_text())
    assert "obs_$x^$ [/no] \\x1b[31m" in "".join(drawn.itertext())


def test_a_state_by_name_is_the_same_state_in_any_order(inspected) -> None:
    data = inspected["pspo"].data
    by_position = make_query(data, None, "1.5,-2,30", None).obs
    named = {"heat": 30.0, "speed": 1.5, "load": -2.0}
    for state in ("speed=1.5,load=-2,heat=30", " heat = 30, load=-2 ,speed=1.5", named, pd.DataFrame([named])):
        np.testing.assert_array_equal(make_query(data, None, state, None).obs, by_position)
    with pytest.raises(UserError, match="has no names for its columns"):
        make_query(dataclasses.replace(data, obs_names=()), None, named, None)


def test_the_command_takes_a_state_by_name(runs, inspected, capsys) -> None:
    speed, load, heat = (str(x) for x in inspected["pspo"].obs)
    words = ["--state", f"heat={heat},speed={speed},load={load}"]
    assert main(["inspect", str(runs / "pspo"), *words, "--json", "--quiet"]) == 0
    assert without_row(json.loads(capsys.readouterr().out)) == without_row(inspected["pspo"].found.as_dict())


def test_a_row_of_another_file(runs, inspected) -> None:
    case = inspected["pspo"]
    other = pspo.load_dataset(runs / "later.csv", columns=COLUMNS)
    query = make_query(case.data, other, None, 12)
    assert (query.obs == other.obs[11]).all()  # row 9 of the file has no next state, and rows count as in the file
    assert figure_name(query, True) == f"inspect-row12-of-later-{other.hash[:6]}.png"
    with pytest.raises(UserError, match="has rows 0 to 98"):
        make_query(case.data, other, None, 100)
    with pytest.raises(UserError, match="give --row with --data"):
        make_query(case.data, other, "1,2,3", None)
    with pytest.raises(UserError, match="give data with the same columns"):
        make_query(case.data, SimpleNamespace(name="wide", obs_dim=4, action_dim=2), None, 0)  # pyright: ignore


def test_figures_of_different_states_have_different_names() -> None:
    names = [
        figure_name(StateQuery(np.asarray(obs, np.float32)), False)
        for obs in ([1.0, 2.0], [1.0, 2.0000002], [12.0, 0.0], np.arange(17.0), np.arange(17.0) + 1e-3)
    ]
    assert len(set(names)) == 5
    assert names[0] == "inspect-state-1.0_2.0.png"
    assert max(map(len, names)) < 80


def test_columns_have_the_names_of_the_dataset_or_numbers(inspected) -> None:
    found = inspected["pspo"].found
    assert [column.name for column in found.coverage.columns] == ["speed", "load", "heat"]
    assert [column.name for column in found.action.columns] == ["valve", "fan"]
    nameless: Any = SimpleNamespace(column_names=lambda role: [])
    assert inspection._names(nameless, "obs", 2) == ["obs 0", "obs 1"]
    assert inspection._names(nameless, "action", 1) == ["action"]


def test_the_api_is_exported() -> None:
    assert pspo.inspect_policy is inspection.inspect_policy


# Bad input: one sentence, exit code 2, and nothing is computed or written


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give either --state 3,80,1.2 or --row 120"),
        (["--state", "1,2,3", "--row", "1"], "give either --state 3,80,1.2 or --row 120"),
        (["--state", "1,2"], "has 2 numbers, and 'table' has 3 columns"),
        (["--state", "-1,2,3,4"], "has 4 numbers"),
        (["--state=-1,2"], "has 2 numbers"),
        (["--state", "1,2,many"], "'1,2,many' is not a list of numbers"),
        (["--state", "1,,3"], "is not a list of numbers"),
        (["--state", "1,nan,3"], "is nan in column 1"),
        (["--state", "-inf,2,3"], "is -inf in column 0"),
        (["--state", "1e300,2,3"], "is 1e+300 in column 0"),
        (["--state", "speed=1,load=2"], "the state lacks 'heat': give 'speed', 'load', 'heat', in any order"),
        (["--state", "speed=1,load=2,heat=3,fan=4"], "the state has the unknown 'fan'"),
        (["--state", "speed=1,load=2,heat=3,load=2"], "gives 'load' twice"),
        (["--state", "speed=1,2,heat=3"], "'2' in the state is not a name and a number"),
        (["--state", "speed=1,load=much,heat=3"], "'load=much' in the state is not a name and a number"),
        (["--state", "speed=1,load=nan,heat=3"], "is nan in column 1"),
        (["--row", "600"], "row 600 is out of range: 'table' has rows 0 to 598"),
        (["--row", "-1"], "row -1 is out of range"),
        (["--row", "0", "--data", "no-such-file.npz"], "no-such-file.npz"),
        (["--row", "0", "--out", "figure.pdf"], "ends neither in .png nor in .svg"),
        (["--row", "0", "--out", "no/such/folder/figure.png"], "no/such/folder does not exist"),
        (["--row", "0", "--threads", "0"], "--threads 0 is out of range"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(runs, words, says, capsys, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "load_networks", lambda *_: pytest.fail("it was inspected"))
    before = sorted((runs / "pspo").iterdir())
    assert main(["inspect", str(runs / "pspo"), "--quiet", *words]) == 2
    one_sentence(capsys.readouterr().err, says)
    assert sorted((runs / "pspo").iterdir()) == before


def test_unfinished_runs_and_missing_data_are_refused(runs, tmp_path, capsys) -> None:
    run = shutil.copytree(runs / "pspo", tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"dataset": str(tmp_path / "lost.csv")}))
    assert main(["inspect", str(run), "--row", "0", "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "lost.csv")
    (run / "result.json").unlink()
    assert main(["inspect", str(run), "--row", "0", "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "is not finished")
    assert main(["inspect", str(tmp_path), "--row", "0", "--quiet"]) == 2
    one_sentence(capsys.readouterr().err, "is not a run directory")
