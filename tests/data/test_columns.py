"""Which column is which: patterns, their order, usual names, and one sentence where they are ambiguous."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Columns
from pspo.data.columns import ROLES, as_columns, choose, natural_key
from tests.refusals import message_of


def refusal(names: list[str], **patterns: str) -> str:
    return message_of(choose, names, Columns(**patterns))


@given(st.lists(st.integers(0, 10_000), unique=True, min_size=1), st.randoms())
def test_columns_are_taken_in_the_order_of_the_table(numbers: list[int], rng: random.Random) -> None:
    names = [f"x{number}" for number in numbers] + ["u", "r", "end"]
    rng.shuffle(names)
    result = choose(names, Columns(obs="x*", action="u", reward="r", terminal="end"))
    assert result == {
        "obs": [name for name in names if name.startswith("x")],
        "action": ["u"],
        "reward": ["r"],
        "terminal": ["end"],
    }


def test_natural_order() -> None:
    names = ["x10_2", "x2", "x", "x10", "x1", "y", "x10_10"]
    assert sorted(names, key=natural_key) == ["x", "x1", "x2", "x10", "x10_2", "x10_10", "y"]


def test_the_order_of_patterns_is_kept_and_nothing_is_taken_twice() -> None:
    result = choose(["a", "b2", "b10", "u", "r", "end"], Columns("b10, a, b*", "u", "r", terminal="end"))
    assert result["obs"] == ["b10", "a", "b2"]


# The next state


@pytest.mark.parametrize(
    ("obs", "next_obs"),
    [
        (["obs_b", "obs_a", "obs_10", "obs_9"], ["next_obs_9", "next_obs_a", "next_obs_10", "next_obs_b"]),
        (["obs.b", "obs.a"], ["nextObs.a", "nextObs.b"]),
        (["state_b", "state_a"], ["state_next_a", "state_next_b"]),
        (["s1", "s0"], ["ns0", "ns1"]),
    ],
)
def test_detected_next_states_follow_the_states_by_name(obs: list[str], next_obs: list[str]) -> None:
    result = choose([*next_obs, *obs, "action", "reward", "done"], Columns())
    assert result["obs"] == obs
    for name, after in zip(obs, result["next_obs"], strict=True):
        assert after.replace("next_", "").replace("nextO", "o").replace("ns", "s") == name


@pytest.mark.parametrize(
    ("patterns", "names", "expected"),
    [
        ({"obs": "p*", "next_obs": "q*"}, ["q0", "p1", "q1", "p0"], ["q1", "q0"]),
        ({"obs": "*_t", "next_obs": "*_t1"}, ["b_t", "a_t", "a_t1", "b_t1"], ["b_t1", "a_t1"]),
        ({"obs": "b,a", "next_obs": "next_*"}, ["a", "b", "next_a", "next_b"], ["next_b", "next_a"]),
        ({"obs": "x?", "next_obs": "next_xa,next_xb"}, ["xb", "xa", "next_xa", "next_xb"], ["next_xb", "next_xa"]),
        ({"obs": "b,a", "next_obs": "one,two"}, ["two", "a", "b", "one"], ["one", "two"]),  # the lists are the pairs
    ],
)
def test_chosen_next_states_follow_the_states(patterns: dict[str, str], names: list[str], expected: list[str]) -> None:
    assert choose([*names, "action", "reward", "done"], Columns(**patterns))["next_obs"] == expected


def test_pairs_that_names_do_not_tell_or_contradict_are_refused() -> None:
    rest = ["action", "reward", "done"]
    message = refusal(["x_a", "x_b", "y_c", "y_d", *rest], obs="x_*", next_obs="y_*")
    assert "do not tell which of the next state's columns 'y_c', 'y_d'" in message
    assert "in the same order" in message
    message = refusal(["a", "b", "next_a", "next_b", *rest], obs="b,a", next_obs="next_a,next_b")
    assert "'next_a' is listed as the next 'b'" in message


def test_brackets_are_not_wild_and_a_column_may_be_called_star() -> None:
    names = ["x[0]", "x[1]", "x0", "*", "r", "end"]
    result = choose(names, Columns("x[0],x[1]", "*", "r", terminal="end"))
    assert (result["obs"], result["action"]) == (["x[0]", "x[1]"], ["*"])


def test_a_closer_pattern_wins() -> None:
    names = ["x0", "x1", "x_next0", "x_next1", "u", "reward", "done"]
    result = choose(names, Columns(obs="*", action="u", next_obs="x_next*"))
    assert result["obs"] == ["x0", "x1"]
    assert result["next_obs"] == ["x_next0", "x_next1"]
    assert (result["reward"], result["terminal"]) == (["reward"], ["done"])


def test_equally_close_patterns_are_refused() -> None:
    assert "'x1' is asked for as obs and as action" in refusal(["x1", "r", "done"], obs="x1", action="x1")
    assert "as obs and as action" in refusal(["x1", "r", "done"], obs="x*", action="*1")


USUAL = [
    ["obs_0", "obs_1", "action_0", "reward", "next_obs_0", "next_obs_1", "episode_id", "terminal", "timeout"],
    ["observation.x", "observation.y", "act[0]", "Reward", "next_observation.x", "next_observation.y", "Episode"],
    ["s0", "s1", "a0", "r", "ns0", "ns1", "trajectory", "terminated", "truncated"],
    ["state", "action", "rewards", "next_state", "trajectory_id", "done"],
    ["observations", "actions", "rewards", "next_observations", "terminals", "timeouts"],
    ["obs_0", "action", "reward", "obs_next_0", "done"],
]


@pytest.mark.parametrize("names", USUAL)
@pytest.mark.parametrize("seed", range(3))
def test_usual_names_are_recognised(names: list[str], seed: int) -> None:
    shuffled = random.Random(seed).sample([*names, "comment", "action_prob"], len(names) + 2)
    result = choose(shuffled, Columns())
    assert sorted(name for members in result.values() for name in members) == sorted(names)
    assert len(result["obs"]) == len(result["next_obs"])
    assert [role for role in ROLES if role in result] == list(dict.fromkeys(role_of(name) for name in names))


def role_of(name: str) -> str:
    name = name.lower()
    if name.startswith(("n", "obs_next")):
        return "next_obs"
    if name.startswith(("o", "s")):
        return "obs"
    if name.startswith("a"):
        return "action"
    if name.startswith("r"):
        return "reward"
    if name.startswith(("e", "traj")):
        return "episode"
    return "timeout" if name.startswith(("timeout", "trunc")) else "terminal"


def test_done_gives_way_to_a_column_of_terminals() -> None:
    names = ["obs", "action", "reward", "done", "terminated", "truncated"]
    assert choose(names, Columns())["terminal"] == ["terminated"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["x", "y", "u", "reward", "done"], ["the obs among 'x', 'y', 'u'", "--obs"]),
        (["obs", "reward", "done"], ["the action among"]),
        (["obs", "action", "done"], ["the reward among"]),
        (["obs", "action", "reward"], ["where episodes end", "--episode"]),
        (["obs_0", "state_0", "action", "reward", "done"], ["'obs_0', 'state_0' could both be the obs"]),
        (["obs", "action", "reward", "r", "done"], ["could both be the reward"]),
        (["obs", "obs", "action", "reward", "done"], ["'obs' occurs more than once"]),
    ],
)
def test_ambiguous_columns_are_refused(names: list[str], words: list[str]) -> None:
    message = refusal(names)
    for word in words:
        assert word in message


def test_patterns_that_fit_nothing_or_too_much() -> None:
    names = ["obs", "action", "r1", "r2", "done"]
    assert "no column fits 'reword' (reward) among 'obs', 'action'" in refusal(names, reward="reword")
    assert "several columns are the reward: 'r1', 'r2'" in refusal(names, reward="r*")


def test_many_columns_are_not_all_listed() -> None:
    message = refusal([f"q{n}" for n in range(300)])
    assert "'q19' and 280 more" in message
    assert len(message) < 600


@pytest.mark.parametrize(
    "given", [{"obs": 3}, {"obs": ["x", 3]}, {"obs": "x,,y"}, {"obs": ["x", ""]}, {"obz": "x"}, "x*"]
)
def test_what_is_no_mapping_is_refused(given: object) -> None:
    with pytest.raises(UserError):
        as_columns(given)  # type: ignore[arg-type]


def test_a_dictionary_does_as_well() -> None:
    assert as_columns({"obs": "x*, y", "action": ["u"], "reward": None}) == Columns(obs=("x*", "y"), action="u")


class CountedName(str):
    """A name that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("given", [{}, {"obs": "obs_*"}, {"obs": ",".join(f"obs_{i}" for i in range(1000))}])
def test_the_work_grows_with_the_number_of_columns_not_its_square(given, monkeypatch) -> None:
    names = [CountedName(name) for name in (*(f"obs_{i}" for i in range(1000)), "action", "reward", "terminal")]
    monkeypatch.setattr(CountedName, "compared", 0)
    assert len(choose(list(names), Columns(**given))["obs"]) == 1000
    assert CountedName.compared < 30 * len(names)


# The episode and the state


def test_a_column_can_be_part_of_the_state_and_of_the_episode_if_both_name_it() -> None:
    """A site is a category of the state and, with the day, identifies the episode."""
    names = ["site", "price", "u", "r", "day"]
    result = choose(names, Columns("site,price", "u", "r", episode="site,day"))
    assert (result["obs"], result["episode"]) == (["site", "price"], ["site", "day"])
    rest = choose(names, Columns("*", "u", "r", episode="site,day"))  # a pattern does not take it twice
    assert (rest["obs"], rest["episode"]) == (["price"], ["site", "day"])
    assert "asked for as action and as episode" in refusal(names, obs="price", action="u", reward="r", episode="u,day")


@pytest.mark.parametrize("given", [{}, {"obs": "obs_a,obs_b", "reward": "reward"}, {"obs": "obs_?", "action": "act*"}])
def test_spaces_around_a_name_in_the_header_do_not_matter(given: dict[str, str]) -> None:
    """As people write lists: a, b, c. The columns keep their names."""
    chosen = choose(["obs_a", " obs_b", " action ", " reward", " episode"], Columns(**given))
    assert chosen == {
        "obs": ["obs_a", " obs_b"],
        "action": [" action "],
        "reward": [" reward"],
        "episode": [" episode"],
    }


def test_a_name_is_preferred_to_one_with_spaces_around_it() -> None:
    names = ["x", " x", "u", "r", "id"]
    chosen = choose(names, Columns(obs="x", action="u", reward="r", episode="id"))
    assert chosen["obs"] == ["x"]
