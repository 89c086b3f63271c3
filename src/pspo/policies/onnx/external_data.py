"""Whether an ONNX file refers to other files: found in its bytes, without onnx, before anything loads it.

The bytes are a protobuf message. Only tensors can refer to a file, by their field `external_data` or by a
`data_location` that is not 0; this walks through everything that can hold a tensor. A file that cannot be walked
through, or that is nested deeper than any of ours, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

DEEPEST = 30
VARINT, EIGHT_BYTES, TEXT, FOUR_BYTES = 0, 1, 2, 5  # wire types; the others are groups, which ONNX does not use

# For each message, the fields that can hold a tensor, and the message that each of them is.
HOLDERS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # fields of a tensor


def refers_to_files(content: bytes, message: str = "model", depth: int = 0) -> bool:
    """Whether a tensor of the message is kept elsewhere. Raises ValueError if the bytes are no such message."""
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    for number, wire, value in _fields(content):
        if message == "tensor":
            if number == EXTERNAL_DATA or (number == DATA_LOCATION and value != 0):
                return True
            continue
        inner = HOLDERS[message].get(number) if wire == TEXT else None
        if inner and isinstance(value, bytes) and refers_to_files(value, inner, depth + 1):
            return True
    return False


def _fields(content: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of every field."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if wire == VARINT:
            value, at = _varint(content, at)
        elif wire in (EIGHT_BYTES, FOUR_BYTES, TEXT):
            length, at = _varint(content, at) if wire == TEXT else (8 if wire == EIGHT_BYTES else 4, at)
            if at + length > len(content):
                raise ValueError("a field ends after the message")
            value, at = content[at : at + length], at + length
        else:
            raise ValueError(f"wire type {wire}")
        yield number, wire, value


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at == len(content):
            break
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")
