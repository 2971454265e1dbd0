"""Ids as numbers: the order is the bytewise one of the text, and the text comes back as it was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labels_party.labels import kernels as kernels  # compiled before anything is timed
from labels_party.labels import packed as packing
from labels_party.labels.batches import StaleBatch
from labels_party.labels.masked import masked_schema
from labels_party.labels.packed import MOST_WORDS, order_of, packed, unpacked, words_for

MANY = 1 << 24
IDS = st.lists(st.text(alphabet="ab\x00\x01é€𐍈9", min_size=1, max_size=10), min_size=1, max_size=40)


def batch_of(ids: list[str]) -> pa.RecordBatch:
    masked = pa.array(np.arange(len(ids), dtype=np.uint32))
    return pa.record_batch([pa.array(ids, pa.string()), masked], schema=masked_schema())


@given(IDS)
def test_the_columns_order_as_the_bytes_do(ids: list[str]) -> None:
    batch = batch_of(ids)
    words = words_for(batch, MANY)
    (found,) = packed([batch.slice(0)], words)
    columns = [found.column(name).to_numpy() for name in order_of(words)]
    order = np.lexsort(columns[::-1])
    assert [ids[i] for i in order] == sorted(ids, key=lambda i: i.encode())
    (back,) = unpacked([found.take(pa.array(order))], masked_schema())
    back.validate(full=True)
    assert back == batch.take(pa.array(order))


def test_a_slice_is_packed_from_its_own_rows() -> None:
    batch = batch_of(["x" * 9, "b", "a"]).slice(1)
    (back,) = unpacked(packed([batch], 1), masked_schema())
    assert back.column(0).to_pylist() == ["b", "a"]


def test_an_id_that_does_not_fit_is_not_cut() -> None:
    with pytest.raises(StaleBatch):
        list(packed([batch_of(["a" * 8]), batch_of(["a" * 9])], 1))


def test_text_stays_text_where_numbers_are_not_worth_it() -> None:
    short, long = batch_of(["a"]), batch_of(["a" * (8 * MOST_WORDS + 1)])
    assert words_for(short, None) == words_for(short, 10) == words_for(long, MANY) == 0
    assert words_for(short, packing.LOADED_AFTER) == 1
