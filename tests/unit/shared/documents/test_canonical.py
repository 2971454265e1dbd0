"""RFC 8785 canonical JSON: one spelling per value, everything else refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.documents.canonical import MAX_DEPTH, canonical_bytes, digest, parse_canonical
from label_dp.errors import MalformedManifest

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
LEAVES = st.none() | st.booleans() | SAFE | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_round_trips_and_spells_the_same_again(value: object) -> None:
    data = canonical_bytes(value)
    assert parse_canonical(data) == value
    assert canonical_bytes(parse_canonical(data)) == data


def test_keys_are_sorted_by_utf16_and_nothing_is_escaped_without_need() -> None:
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    assert canonical_bytes(value) == (
        '{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\U0001f600":5,"\ufb33":3}'.encode()
    )


@pytest.mark.parametrize(
    "spelling",
    [
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1}\n',
        b' {"a":1}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"a":"\\u0041"}',
        b'{"a":"\\/"}',
        b'{"a":01}',
        b'{"a":-0}',
        b'{"a":1.0}',
        b'{"a":1e2}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1}{"a":1}',
        b'{"a":1}\x00',
        b'{"a":tru}',
        b"",
        b"\xff",
        b'"\\ud800"',
        b'{"a":9007199254740993}',
        b"[" * 100_000,
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_other_spellings_are_refused(spelling: bytes) -> None:
    with pytest.raises(MalformedManifest):
        parse_canonical(spelling)


@pytest.mark.parametrize("value", [1.0, float("nan"), {1: 2}, {"a": b"x"}, {"a": {1, 2}}, [0.5], object()])
def test_floats_and_other_types_are_not_written(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_bytes(value)


def test_depth_is_bounded_both_ways() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert parse_canonical(canonical_bytes(value)) == value
    with pytest.raises(TypeError, match="16 levels"):
        canonical_bytes([value])
    with pytest.raises(MalformedManifest):
        parse_canonical(b"[" * (MAX_DEPTH + 1) + b"1" + b"]" * (MAX_DEPTH + 1))


def test_the_digest_is_sha256() -> None:
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
