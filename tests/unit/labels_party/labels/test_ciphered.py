"""Encrypted bytes are read anywhere as they were written, and nothing that was changed, moved or cut off is read."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from label_dp.store.objects.port import DamagedObject
from labels_party.labels.ciphered import CHUNK, HEAD, TAG, Reader, ciphered, disclosed, enclosed

KEY, NAME = bytes(range(32)), "bat_1/sealed-a.parquet"
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 17]


def written(plain: bytes, *, piece: int = 1 << 30, key: bytes = KEY, name: str = NAME) -> bytes:
    file = io.BytesIO()
    with ciphered(file, key, name) as inside:
        for start in range(0, len(plain), piece):
            inside.write(plain[start : start + piece])
    return file.getvalue()


def reader(stored: bytes, key: bytes = KEY, name: str = NAME) -> Reader:
    return Reader(pa.BufferReader(stored), key, name)


def some(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece", [1000, CHUNK, 1 << 30])
def test_what_was_written_is_read(size: int, piece: int) -> None:
    stored = written(some(size), piece=piece)
    found = reader(stored)
    assert found.read() == some(size)
    assert (found.size(), found.seek(0, io.SEEK_END)) == (size, size)
    assert len(stored) == HEAD + size + TAG * max(1, -(-size // CHUNK))  # of the number of bytes alone


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 3 * CHUNK + 20), st.integers(0, 2 * CHUNK)), min_size=1, max_size=5))
def test_any_piece_is_read_in_any_order(pieces: list[tuple[int, int]]) -> None:
    plain = some(3 * CHUNK + 17)
    found = reader(STORED)
    for start, size in pieces:
        found.seek(start)
        assert found.read(size) == plain[start : start + size]


STORED = written(some(3 * CHUNK + 17))
WHOLE = CHUNK + TAG
CHANGED = {
    "a bit of the head": STORED[:9] + bytes([STORED[9] ^ 1]) + STORED[10:],
    "another format": b"X" + STORED[1:],
    "a bit of a chunk": STORED[: HEAD + 5] + bytes([STORED[HEAD + 5] ^ 1]) + STORED[HEAD + 6 :],
    "a bit of the end": STORED[:-1] + bytes([STORED[-1] ^ 1]),
    "a byte less": STORED[:-1],
    "a chunk less at the end": STORED[: HEAD + 3 * WHOLE],
    "a chunk less in the middle": STORED[: HEAD + WHOLE] + STORED[HEAD + 2 * WHOLE :],
    "two chunks in each other's place": STORED[:HEAD]
    + STORED[HEAD + WHOLE : HEAD + 2 * WHOLE]
    + STORED[HEAD : HEAD + WHOLE]
    + STORED[HEAD + 2 * WHOLE :],
    "more bytes": STORED + bytes(5),
    "the head alone": STORED[:HEAD],
    "nothing": b"",
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_was_changed_is_refused(what: str) -> None:
    with pytest.raises(DamagedObject):
        reader(CHANGED[what]).read()


@pytest.mark.parametrize(("key", "name"), [(bytes(32), NAME), (KEY, "bat_1/sealed-b.parquet"), (KEY, "bat_2/sealed-a")])
def test_another_key_or_place_opens_nothing(key: bytes, name: str) -> None:
    with pytest.raises(DamagedObject):
        reader(STORED, key, name)


def test_the_same_bytes_never_look_the_same() -> None:
    assert written(b"x" * 1000)[HEAD:] != written(b"x" * 1000)[HEAD:]
    assert enclosed(KEY, b"x", "place") != enclosed(KEY, b"x", "place")


def test_a_few_bytes_are_bound_to_their_place() -> None:
    sealed = enclosed(KEY, b"label", "bat_1")
    assert disclosed(KEY, sealed, "bat_1") == b"label"
    for key, data, place in (
        (bytes(32), sealed, "bat_1"),
        (KEY, sealed, "bat_2"),
        (KEY, sealed[:-1], "bat_1"),
        (KEY, b"", "bat_1"),
    ):
        with pytest.raises(DamagedObject):
            disclosed(key, data, place)
