"""`pspo inspect` from end to end: text, JSON, figures, and bad input in one sentence."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pspo
from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.evaluation.inspect import inspection
from pspo.evaluation.inspect.figure import write_figure
from pspo.evaluation.inspect.question import Question, ask, figure_name
from pspo.evaluation.inspect.text import show
from tests.evaluation.inspect.inspecting_cases import COLUMNS, ROW

PNG = b"\x89PNG\r\n\x1a\n"


def without_the_row(found: dict) -> dict:
    """What a state alone cannot know."""
    found = json.loads(json.dumps(found))
    for name in ("row", "row_of", "logged", "figure"):
        found.pop(name, None)
    found["values"]["marks"] = [mark for mark in found["values"]["marks"] if mark["name"] != "logged"]
    for column in found["beliefs"]["following"]:
        column |= {"followed": None, "then_expected": None, "then_spread": None}
    found["verdict"] = [s for s in found["verdict"] if "What followed" not in s and "None of the signs" not in s]
    return found


def test_a_state_is_the_row_that_has_its_values_and_json_says_all(runs, looked, capsys) -> None:
    by_row = looked["pspo"].found
    words = ",".join(str(x) for x in looked["pspo"].obs)
    assert main(["inspect", str(runs / "pspo"), "--state", words, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert without_the_row(found) == without_the_row(by_row.as_dict())
    assert found["row"] is None
    assert found["judged_by"] == inspection.OWN
    assert found["figure"] == str(runs / "pspo" / f"inspect-state-{words.replace(',', '_')}.png")
    picture = (runs / "pspo" / found["figure"]).read_bytes()
    assert picture.startswith(PNG)
    assert int.from_bytes(picture[16:20], "big") == 1200  # pixels wide


@pytest.mark.slow
def test_a_negative_state_of_two_action_columns_in_words_and_as_svg(runs, tmp_path, capsys) -> None:
    out = tmp_path / "state.svg"
    assert main(["inspect", str(runs / "td3bc"), "--state", "-1.5,2,30", "--out", str(out), "--quiet"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert inspection.FITTED in text
    assert "speed -1.5" in text
    assert "heat 30 outside" in text
    assert "The state lies outside of the log's range: heat is 30 (log: 0 to 8)." in text
    assert "valve" in text
    assert "fan" in text
    assert "none" in text  # of noise
    assert f"figure: {out}" in text
    drawn = out.read_text()
    assert drawn.rstrip().endswith("</svg>")
    for words in ("valve", "fan", "weight P(T|E)", "percentile in the log", "heat"):
        assert words in drawn


def test_a_row_in_words_has_what_was_done_and_what_followed(looked, capsys) -> None:
    found = looked["pspo"].found
    show(found)
    text = " ".join(capsys.readouterr().out.split())
    assert f"in row {ROW} of table" in text
    assert "heat" in text
    assert "valve" in text
    assert f"The log's own return from here was {found.logged.to_go:.4g}" in text
    assert "The episode went on." in text
    assert "effective of 4 models" in text
    for sentence in found.verdict:
        assert sentence in text


def test_a_png_of_two_action_columns(looked, tmp_path) -> None:
    path = write_figure(looked["pspo"].found, tmp_path / "two.png")
    assert path.read_bytes().startswith(PNG)


def test_another_logs_row_is_judged_by_the_runs_own_log(runs, looked) -> None:
    case = looked["pspo"]
    other = pspo.load_dataset(runs / "later.csv", columns=COLUMNS)
    question = ask(case.data, other, None, 12)
    assert (question.obs == other.obs[12]).all()
    assert figure_name(question, True) == f"inspect-row12-of-later-{other.hash[:6]}.png"
    with pytest.raises(UserError, match="has rows 0 to 89"):
        ask(case.data, other, None, 100)
    with pytest.raises(UserError, match="give --row with --data"):
        ask(case.data, other, "1,2,3", None)
    with pytest.raises(UserError, match="give a log of the same kind"):
        ask(case.data, SimpleNamespace(name="wide", obs_dim=4, action_dim=2), None, 0)  # pyright: ignore


def test_figures_of_different_states_have_different_names() -> None:
    names = [
        figure_name(Question(np.asarray(obs, np.float32)), False)
        for obs in ([1.0, 2.0], [1.0, 2.0000002], [12.0, 0.0], np.arange(17.0), np.arange(17.0) + 1e-3)
    ]
    assert len(set(names)) == 5
    assert names[0] == "inspect-state-1.0_2.0.png"
    assert max(map(len, names)) < 80


def test_columns_have_the_logs_names_or_numbers(looked) -> None:
    found = looked["pspo"].found
    assert [column.name for column in found.place.columns] == ["speed", "load", "heat"]
    assert [column.name for column in found.act.columns] == ["valve", "fan"]
    nameless: Any = SimpleNamespace(column_names=lambda role: [])
    assert inspection._names(nameless, "obs", 2) == ["obs 0", "obs 1"]
    assert inspection._names(nameless, "action", 1) == ["action"]


def test_the_api_is_exported() -> None:
    assert pspo.inspect_policy is inspection.inspect_policy


# Bad input: one sentence, exit code 2, and nothing is judged or written


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give --state 3,80,1.2 or --row 120"),
        (["--state", "1,2,3", "--row", "1"], "give --state 3,80,1.2 or --row 120"),
        (["--state", "1,2"], "has 2 numbers, and 'table' has 3 columns"),
        (["--state", "-1,2,3,4"], "has 4 numbers"),
        (["--state=-1,2"], "has 2 numbers"),
        (["--state", "1,2,many"], "'1,2,many' is not numbers"),
        (["--state", "1,,3"], "is not numbers"),
        (["--state", "1,nan,3"], "is nan in column 1"),
        (["--state", "-inf,2,3"], "is -inf in column 0"),
        (["--state", "1e300,2,3"], "is 1e+300 in column 0"),
        (["--row", "540"], "row 540 is out of range: 'table' has rows 0 to 539"),
        (["--row", "-1"], "row -1 is out of range"),
        (["--row", "0", "--data", "no-such-file.npz"], "no-such-file.npz"),
        (["--row", "0", "--out", "figure.pdf"], "ends neither in .png nor in .svg"),
        (["--row", "0", "--out", "no/such/folder/figure.png"], "no/such/folder does not exist"),
        (["--row", "0", "--threads", "0"], "--threads 0 is out of range"),
    ],
)
def test_a_wrong_word_is_named(runs, words, says, capsys, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "find_judges", lambda *_: pytest.fail("it was judged"))
    before = sorted((runs / "pspo").iterdir())
    assert main(["inspect", str(runs / "pspo"), "--quiet", *words]) == 2
    assert_one_sentence(capsys.readouterr().err, says)
    assert sorted((runs / "pspo").iterdir()) == before


def assert_one_sentence(text: str, says: str) -> None:
    said = text.strip().splitlines()
    assert len(said) == 1, text
    assert said[0].startswith("pspo: ")
    assert says in said[0]


def test_unfinished_runs_and_lost_logs_are_refused(runs, tmp_path, capsys) -> None:
    run = shutil.copytree(runs / "pspo", tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"dataset": str(tmp_path / "lost.csv")}))
    assert main(["inspect", str(run), "--row", "0", "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "lost.csv")
    (run / "result.json").unlink()
    assert main(["inspect", str(run), "--row", "0", "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "is not finished")
    assert main(["inspect", str(tmp_path), "--row", "0", "--quiet"]) == 2
    assert_one_sentence(capsys.readouterr().err, "is not a run directory")
