"""JSON has one meaning or is refused, in a sentence that quotes nothing of it."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.errors import InvalidRequest
from label_dp.strict_json import MAX_DEPTH, decoded_bytes, read_json

SECRET = "SECRET-123.45"

BAD = [
    (b'{"a": 1, "a": 2}', "twice in one object"),
    (b'[{"x": {"a": 1, "b": 2, "a": 1}}]', "twice in one object"),
    (b'{"a": NaN}', "NaN and Infinity"),
    (b'{"a": -Infinity}', "NaN and Infinity"),
    (b'{"a": 1e999}', "too large"),
    (b'{"a": ' + b"9" * 400 + b".5}", "too large"),
    (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
    (b"[" * 100 + b"]" * 100, "nested too deeply"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "nested too deeply"),
    (b'{"a": "\\ud800"}', "surrogate"),
    (b"\xff\xfe{\x00}\x00", "not UTF-8"),
    (b"", "line 1, column 1. It is empty"),
    (b'{"a": 1,\n "b": SECRET-123.45}', "line 2, column 7"),
    (b'{"a": "SECRET-123.45', "ends too early"),
    (b"{'a': 1}", "line 1, column 2"),
    (b'{"a": 1} {"b": 2}', "follows the end"),
    (b'{"a": 1,}', "not valid JSON"),
    (b'{"SECRET-123.45\\x": 1}', "not valid JSON"),
]


@pytest.mark.parametrize(("body", "words"), BAD)
def test_what_has_no_single_meaning_is_refused_in_a_sentence(body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_json(body)
    assert words in refused.value.detail
    assert SECRET not in refused.value.detail
    assert refused.value.detail.endswith(".")
    assert refused.value.exit_code == 2


def test_what_is_fine_is_read_as_it_is() -> None:
    text = '﻿{"a": [1, 2.5, -0.0, 1e300, "\\ud83d\\ude00 é"], "b": {"a": null, "c": true}}'
    assert read_json(text.encode()) == json.loads(text[1:])
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert read_json(deepest) == json.loads(deepest)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_any_json_value_survives(value: object) -> None:
    assert read_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:0123456789eE-+.\\untrflsa ', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read_json(body)
    except InvalidRequest as refused:
        assert refused.detail.endswith(".")  # noqa: PT017 - either outcome is fine


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * 99_999 + "1]",
        "[" + "1.5," * 99_999 + "1]",
        "[" + "999," * 99_999 + "1]",
        "[" + '"ab",' * 99_999 + "1]",
        "[" + '"ā",' * 99_999 + "1]",
        '["' + "a" * 999_999 + '😀"]',
        '["' + "a" * 999_999 + '\\ud83d\\ude00"]',
        "[" + "[]," * 99_999 + "1]",
        "[" + "{}," * 99_999 + "1]",
        "[" + '{"a":1},' * 99_999 + "1]",
        "{" + ",".join(f'"k{i}":1' for i in range(100_000)) + "}",
    ],
    ids=lambda text: text[:8],
)
def test_what_a_document_takes_in_memory_is_known_before_it_is_read(text: str) -> None:
    body = text.encode()
    tracemalloc.start()
    try:
        value = read_json(body)
        taken, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert taken <= most <= decoded_bytes(body) <= 25 * taken
