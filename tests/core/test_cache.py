"""The cache: what decides a result is in its key, a result is made once, and damage is repaired by making it again."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.common.behaviour import ReferenceConfig
from pspo.core.cache import content_key, remember
from pspo.core.files import cache_folder
from pspo.data.normalise import fit_normaliser
from pspo.dynamics.fit import ModelConfig
from tests.core.core_cases import small_dataset


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    def __init__(self, value: float = 1.0, seconds: float = 0.0) -> None:
        self.calls, self.value, self.seconds = 0, value, seconds

    def __call__(self):
        self.calls += 1
        time.sleep(self.seconds)
        return {"a": jnp.full((3,), self.value)}, {"steps": 5, "curve": [[1, 0.5]]}


def like():
    return {"a": jnp.zeros((3,))}


def test_the_second_call_returns_the_cached_result() -> None:
    first, second = Maker(), Maker(2.0)
    tree, metadata, cached = remember("thing", like, first)
    again, metadata_again, cached_again = remember("thing", like, second)
    assert (first.calls, second.calls, cached, cached_again) == (1, 0, False, True)
    np.testing.assert_array_equal(tree["a"], again["a"])
    assert metadata == metadata_again
    assert metadata["steps"] == 5


def test_the_digest_is_that_of_the_arrays() -> None:
    digests = {remember(key, like, Maker(value))[1]["digest"] for key, value in (("x", 1.0), ("y", 1.0), ("z", 2.0))}
    assert len(digests) == 2


def test_another_key_is_another_result() -> None:
    remember("one", like, Maker(1.0))
    tree, _, cached = remember("two", like, Maker(2.0))
    assert not cached
    assert float(tree["a"][0]) == 2.0


def only_entry() -> Path:
    (path,) = cache_folder().glob("*.safetensors")
    return path


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "structure"])
def test_a_damaged_entry_is_made_again_and_repaired(how: str) -> None:
    remember("thing", like, Maker(1.0))
    path = only_entry()
    data = path.read_bytes()
    shape = like
    match how:
        case "flipped":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "empty":
            path.write_bytes(b"")
        case "structure":  # a file of an older version of the program

            def shape():
                return {"a": jnp.zeros((4,))}

            def other():
                return {"a": jnp.full((4,), 7.0)}, {}

            assert remember("thing", shape, other)[2] is False
            assert remember("thing", shape, other)[2] is True
            return
    again = Maker(3.0)
    tree, _, cached = remember("thing", shape, again)
    assert (again.calls, cached, float(tree["a"][0])) == (1, False, 3.0)
    assert remember("thing", shape, Maker(4.0))[2] is True


def test_temporary_files_of_a_killed_process_are_removed(own_cache) -> None:
    own_cache.mkdir()
    for name in (".key.safetensors.abcd1234", ".other.safetensors.abcd1234"):
        (own_cache / name).write_text("x")
    remember("key", like, Maker())
    assert {path.name for path in own_cache.glob(".*")} == {".other.safetensors.abcd1234"}


def test_a_failing_maker_leaves_no_entry() -> None:
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remember("thing", like, fail)
    assert not list(cache_folder().glob("*.safetensors"))
    assert remember("thing", like, Maker())[2] is False


def test_of_several_threads_one_makes_it() -> None:
    maker, result = Maker(seconds=0.2), []
    threads = [threading.Thread(target=lambda: result.append(remember("thing", like, maker))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maker.calls == 1
    assert sorted(cached for _, _, cached in result) == [False, True, True, True]


WORKER = """
import sys, time
import numpy as np
from pspo.core.cache import remember

def make():
    with open(sys.argv[1], "a") as file:
        file.write("made\\n")
    time.sleep(1.0)
    return {"a": np.ones(3, np.float32)}, {}

open(sys.argv[2], "w").close()
while len(list(__import__("pathlib").Path(sys.argv[2]).parent.glob("ready*"))) < 2:
    time.sleep(0.01)
tree, facts, cached = remember("thing", lambda: {"a": np.zeros(3, np.float32)}, make)
print(cached, float(tree["a"].sum()))
"""


def test_of_two_processes_one_makes_it(tmp_path) -> None:
    (tmp_path / "meet").mkdir()
    command = [sys.executable, "-c", WORKER, str(tmp_path / "log")]
    workers = [
        subprocess.Popen([*command, str(tmp_path / "meet" / f"ready{i}")], stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    output = sorted(worker.communicate(timeout=60)[0].strip() for worker in workers)
    assert output == ["False 3.0", "True 3.0"]
    assert (tmp_path / "log").read_text() == "made\n"


def test_the_key_changes_with_everything_that_decides_the_result() -> None:
    data = small_dataset()
    norm, config = fit_normaliser(data), ModelConfig()
    other_reward = data.reward.copy()
    other_reward[3] += 1.0
    variants = [
        content_key("pool", 1, data, norm, config, 0),
        content_key("reference", 1, data, norm, config, 0),
        content_key("pool", 2, data, norm, config, 0),
        content_key("pool", 1, dataclasses.replace(data, reward=other_reward), norm, config, 0),
        content_key("pool", 1, data, norm._replace(obs_mean=norm.obs_mean + 1), config, 0),
        content_key("pool", 1, data, norm._replace(reward_scale=norm.reward_scale * 2), config, 0),
        content_key("pool", 1, data, None, config, 0),
        content_key("pool", 1, data, norm, config, 1),
        *(
            content_key("pool", 1, data, norm, dataclasses.replace(config, **{field.name: 0.123}), 0)
            for field in dataclasses.fields(config)
        ),
        content_key("pool", 1, data, norm, ReferenceConfig(), 0),
    ]
    assert len(set(variants)) == len(variants)


def test_the_key_is_the_same_for_the_same_things_in_another_process() -> None:
    code = (
        "from core_cases import small_dataset; from pspo.core.cache import content_key;"
        "from pspo.data.normalise import fit_normaliser; from pspo.dynamics.fit import ModelConfig;"
        "d = small_dataset(); print(content_key('pool', 1, d, fit_normaliser(d), ModelConfig(), 0))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "77"}
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    data = small_dataset()
    assert output.stdout.strip() == content_key("pool", 1, data, fit_normaliser(data), ModelConfig(), 0)


def test_the_name_of_the_data_is_not_in_the_key() -> None:
    data = small_dataset()
    norm, renamed = fit_normaliser(data), dataclasses.replace(data, name="another name")
    assert content_key("pool", 1, data, norm, ModelConfig(), 0) == content_key(
        "pool", 1, renamed, norm, ModelConfig(), 0
    )
