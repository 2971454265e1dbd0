"""SipHash-2-4-128 against the reference vectors and an independent implementation."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labels_party.labels.at_rest import digest_key
from labels_party.labels.digests import CHUNK, siphash128
from labels_party.ledger.populations import label_scope
from labels_party.storage.secrets import Secrets

KEY = bytes(range(16))
M64 = (1 << 64) - 1

# the first outputs of the reference implementation for key 00 … 0f and input 00 … (n − 1)
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    3: "9c70b60c5267a94e5f33b6b02985ed51",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
}


def reference(data: bytes, key: bytes) -> bytes:
    """SipHash-2-4 with 128-bit output, straight from the paper, one byte string at a time."""

    def rotl(x: int, b: int) -> int:
        return (x << b | x >> 64 - b) & M64

    def sipround() -> None:
        nonlocal v0, v1, v2, v3
        v0 = v0 + v1 & M64
        v1 = rotl(v1, 13) ^ v0
        v0 = rotl(v0, 32)
        v2 = v2 + v3 & M64
        v3 = rotl(v3, 16) ^ v2
        v0 = v0 + v3 & M64
        v3 = rotl(v3, 21) ^ v0
        v2 = v2 + v1 & M64
        v1 = rotl(v1, 17) ^ v2
        v2 = rotl(v2, 32)

    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v3 ^= word
        sipround()
        sipround()
        v0 ^= word
    halves = []
    v2 ^= 0xEE
    for _ in range(2):
        for _ in range(4):
            sipround()
        halves.append((v0 ^ v1 ^ v2 ^ v3).to_bytes(8, "little"))
        v1 ^= 0xDD
    return b"".join(halves)


def digest_of(ids: pa.Array, key: bytes = KEY) -> list[bytes]:
    low, high = siphash128(ids, key)
    assert low.dtype == high.dtype == np.uint64
    return [a.tobytes() + b.tobytes() for a, b in zip(low.astype("<u8"), high.astype("<u8"), strict=True)]


@pytest.mark.parametrize("n", sorted(VECTORS))
def test_reference_vectors(n: int) -> None:
    data = bytes(range(n))
    assert reference(data, KEY).hex() == VECTORS[n]
    assert digest_of(pa.array([data.decode()])) == [bytes.fromhex(VECTORS[n])]


def test_every_length_up_to_the_longest_id_and_beyond() -> None:
    rng = random.Random(1)
    texts = [
        "".join(chr(rng.randrange(1, 128)) for _ in range(n)) for n in [*range(90), *range(250, 262), 511, 512, 1025]
    ]
    key = rng.randbytes(16)
    assert digest_of(pa.array(texts), key) == [reference(t.encode(), key) for t in texts]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=30), st.binary(min_size=16, max_size=16))
def test_any_text_under_any_key(texts: list[str], key: bytes) -> None:
    expected = [reference(t.encode(), key) for t in texts]
    assert digest_of(pa.array(texts, pa.string()), key) == expected
    assert digest_of(pa.array(texts, pa.large_string()), key) == expected


def test_multibyte_text_is_hashed_by_its_bytes() -> None:
    texts = ["é", "e\u0301", "日本語", "\U0001f600" * 70, "a\0b", "a", "\0", "\0\0", ""]
    found = digest_of(pa.array(texts))
    assert found == [reference(t.encode(), KEY) for t in texts]
    assert len(set(found)) == len(texts)


def test_slices_of_arrow_arrays_hash_as_their_values() -> None:
    texts = [f"click-{i}" * (i % 5) for i in range(100)]
    whole = pa.array(texts)
    for start, length in ((0, 100), (1, 99), (37, 20), (99, 1), (50, 0)):
        assert digest_of(whole.slice(start, length)) == [reference(t.encode(), KEY) for t in texts[start:][:length]]
    chained = pa.chunked_array([whole.slice(3, 5), whole.slice(50, 4)]).combine_chunks()
    assert digest_of(chained) == [reference(t.encode(), KEY) for t in texts[3:8] + texts[50:54]]


def test_more_ids_than_one_chunk() -> None:
    texts = [f"id-{i}" for i in range(CHUNK * 2 + 3)]
    found = digest_of(pa.array(texts))
    assert len(set(found)) == len(texts)
    for i in (0, CHUNK - 1, CHUNK, 2 * CHUNK - 1, 2 * CHUNK, len(texts) - 1):
        assert found[i] == reference(texts[i].encode(), KEY)


def test_digests_are_keyed_by_party_and_by_label_name() -> None:
    ours, theirs = Secrets(bytes(32)), Secrets(bytes(31) + b"\1")
    assert digest_key(ours, "revenue") != digest_key(theirs, "revenue")
    assert digest_key(ours, "revenue") != digest_key(ours, "weeks")


@pytest.mark.parametrize("spelling", ["Revenue", "REVENUE", " revenue ", "ｒｅｖｅｎｕｅ", "revenue\u00a0"])
def test_a_label_name_has_one_scope_however_it_is_spelled(spelling: str) -> None:
    held = Secrets(bytes(32))
    assert label_scope(spelling) == "revenue"
    assert digest_key(held, spelling) == digest_key(held, "revenue")


def test_keys_are_derived_and_never_shown() -> None:
    held = Secrets(b"m" * 32)
    assert held.derive("a") != held.derive("b")
    assert len(held.derive("a")) == 16
    assert "m" * 8 not in repr(held)
    assert held.master.hex() not in repr(held)
    assert held.mac("p", b"x") != held.mac("q", b"x") != held.mac("q", b"y")
