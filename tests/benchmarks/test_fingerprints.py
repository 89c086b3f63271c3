"""What the digests of benchmarks.fingerprints depend on, and what they ignore."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from benchmarks.fingerprints import arrays_digest, differences, numbers, numbers_digest
from safetensors.numpy import save_file


def test_numbers_are_taken_in_order_without_times_and_flags() -> None:
    content = {"run": "x", "value": 1.5, "own": True, "seconds": 9.0, "more": [2, {"low": -1.0, "fit_seconds": 3.0}]}
    assert numbers(content) == [1.5, 2.0, -1.0]
    renamed = {"estimate": 1.5, "more": [2, {"lower": -1.0}]}
    assert numbers_digest(json.dumps(content)) == numbers_digest(json.dumps(renamed))
    assert numbers_digest(json.dumps(content)) != numbers_digest(json.dumps({"value": 1.5, "more": [2, -1.0000001]}))


def test_arrays_count_with_their_shapes_and_not_with_their_names(tmp_path: Path) -> None:
    def digest(**arrays: np.ndarray) -> str:
        save_file(arrays, tmp_path / "policy.safetensors", metadata={"count": str(len(arrays))})
        return arrays_digest(tmp_path / "policy.safetensors")

    one, other = np.arange(6, dtype=np.float32), np.ones(2, np.float32)
    assert digest(a=one, b=other) == digest(c=other, a=one)
    assert digest(a=one) != digest(a=one.reshape(2, 3))
    assert digest(a=one) != digest(a=np.nextafter(one, 9, dtype=np.float32))


def test_differences_name_what_changed_and_what_is_missing() -> None:
    assert differences({"bc": "1", "cql": "2", "ope": "3"}, {"bc": "1", "cql": "4", "onnx": "5"}) == [
        "cql",
        "onnx",
        "ope",
    ]
