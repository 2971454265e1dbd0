"""What all calls decode together stays within a budget: they wait in turn, or are refused; and none waits for ever."""

from __future__ import annotations

import contextvars
import io
import threading
import time

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from label_dp.columnar.budget import FREE, DecodeBudget, needs
from label_dp.columnar.rows import ParquetRows
from label_dp.columnar.tables import COPIES, read_table
from label_dp.errors import Busy

MIB = 1 << 20


def test_calls_wait_in_turn_and_never_take_more_than_there_is() -> None:
    budget, order, most = DecodeBudget(100 * MIB, patience=30), list[int](), list[int]()

    def call(number: int, size: int) -> None:
        with budget.share() as share:
            share.need(size)
            order.append(number)
            most.append(budget.taken)
            time.sleep(0.05)

    with budget.share() as first:
        first.need(90 * MIB)
        threads = [threading.Thread(target=call, args=(n, (95 if n == 0 else 10) * MIB)) for n in range(8)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)  # each comes after the one before it
        assert not order  # a small one does not pass a large one that came before it
    for thread in threads:
        thread.join(20)
    assert order[0] == 0
    assert sorted(order) == list(range(8))
    assert max(most) <= 100 * MIB
    assert budget.taken == 0


def test_one_that_waits_too_long_is_refused_and_leaves_the_turn_to_others() -> None:
    budget = DecodeBudget(10 * MIB, patience=0.1)
    with budget.share() as first, budget.share() as second:
        first.need(8 * MIB)
        with pytest.raises(Busy, match="try again in a moment"):
            second.need(5 * MIB)
    with budget.share() as third:
        third.need(50 * MIB)  # more than there is: all of it, alone
        assert budget.taken == 10 * MIB
        with budget.share() as fourth, pytest.raises(Busy):
            fourth.need(5 * MIB)
    assert budget.taken == 0


def test_a_call_that_holds_something_does_not_wait() -> None:
    budget = DecodeBudget(20 * MIB, patience=60)
    with budget.share() as one, budget.share() as other:
        one.need(8 * MIB)
        other.need(8 * MIB)
        began = time.monotonic()
        with pytest.raises(Busy):
            one.need(16 * MIB)  # else both would wait for each other
        assert time.monotonic() - began < 10
        one.need(12 * MIB)
        one.need(4 * MIB)
        assert budget.taken == 20 * MIB


def test_what_is_small_and_what_is_no_call_is_not_counted() -> None:
    budget = DecodeBudget(10 * MIB, patience=0)
    needs(1 << 60)
    with budget.share() as share:
        needs(FREE)
        assert share.held == 0
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(needs, 2 * FREE))
        thread.start()
        thread.join(10)
        assert share.held == budget.taken == 2 * FREE  # of a thread that works for the call
    share.need(2 * FREE)  # a thread that outlives its call
    assert budget.taken == 0


@pytest.mark.parametrize("encoding", ["PLAIN", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("width", [3, 400])
def test_what_rows_become_is_never_more_than_their_claims(encoding: str, width: int) -> None:
    ids = pa.array([f"{i:07d}".rjust(width, "x") for i in range(20_000)])
    out = io.BytesIO()
    options = {"use_dictionary": ["id"]} if encoding == "RLE_DICTIONARY" else {
        "use_dictionary": False, "column_encoding": {"id": encoding}
    }  # fmt: skip
    pq.write_table(pa.table({"id": ids, "y": range(20_000)}), out, compression="zstd", row_group_size=7000, **options)
    with ParquetRows.open(out) as rows:
        most, some = rows.most(), rows.most(["y"])
        assert rows.most() == most  # asking again is no second look that counts
        table = rows.table()
    assert table.nbytes <= most
    assert table.select(["y"]).nbytes <= some < most


def test_a_table_is_paid_for_before_it_is_read() -> None:
    lines = b"a,b\n" + b"1,\n" * 2_000_000
    ids = pa.array([f"{i:07d}".rjust(400, "x") for i in range(50_000)])
    out = io.BytesIO()
    pq.write_table(
        pa.table({"id": ids}), out, use_dictionary=False, column_encoding={"id": "DELTA_BYTE_ARRAY"}, compression="zstd"
    )
    assert len(out.getvalue()) < MIB
    for data, size in ((lines, arrow_csv.read_csv(io.BytesIO(lines)).nbytes), (out.getvalue(), ids.nbytes)):
        budget = DecodeBudget(1 << 40, patience=0)
        with budget.share() as share:
            read_table(io.BytesIO(data))
            assert share.held >= COPIES * size
        full = DecodeBudget(1 << 24, patience=0)
        full.take(1 << 24)
        with full.share(), pytest.raises(Busy):
            read_table(io.BytesIO(data))
