"""What tasks do, called without any engine."""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.documents.rows import largest_encoding
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from label_dp.schemas.events import EventRule
from label_dp.spark.staging import staging, take
from label_dp.spark.task import TaskFailed
from labels_party.labels.ciphered import disclosed
from labels_party.labels.digests import EventKeys
from labels_party.labels.vault import read_object, read_run
from labels_party.ledger.event_rules import data_sets
from labels_party.mechanisms.rr_with_prior import rr_channel
from labels_party.spark.executor.arriving import (
    COUNTS,
    LABELLED,
    PLACE,
    REFUSED,
    ArrivalRules,
    ArrivingRows,
    ids_of,
    labels_of,
    ranges_of,
)
from labels_party.spark.executor.counting import Counting
from labels_party.spark.executor.drawing import Drawing
from labels_party.spark.executor.folding import ORDERED, Folding, counts_of
from labels_party.spark.executor.sealing import Sealing, object_name, order_of
from labels_party.spark.executor.slices import Slice, SlicedLabels

KEY, DIGESTS, ROOM = bytes(range(32)), bytes(range(16, 32)), "bat_1"
RULES = ArrivalRules("id", "label", Domain.parse("0:10"), "clip")
IDS = [f"c{i:05d}" for i in range(3000)]
LABELS = np.random.default_rng(0).integers(0, 11, len(IDS))


def blocks(bounds: list[bytes]) -> list[pa.RecordBatch]:
    mixed = np.random.default_rng(1).permutation(len(IDS))
    rows = pa.record_batch([pa.array(IDS).take(pa.array(mixed)), pa.array(LABELS[mixed] * 1.0)], names=["id", "label"])
    batches = iter([rows.slice(0, 1800), rows.slice(1800)])
    return list(ArrivingRows(RULES, KEY, np.array(bounds, "S"))(batches))


def of_part(found: list[pa.RecordBatch], part: int) -> Iterator[pa.RecordBatch]:
    for batch in found:
        yield batch.filter(pa.array(batch["part"].to_numpy() == part))


def sealed(folder: Path, bounds: list[bytes]) -> list[dict[str, Any]]:
    found = blocks(bounds)
    seal = Sealing(KEY, DIGESTS, listed=False, missing_index=None, staging=str(folder), room=ROOM)
    return [next(seal(of_part(found, part))).to_pylist()[0] for part in range(len(bounds) + 1)]


def test_no_label_leaves_a_task_as_it_is() -> None:
    """Blocks hold the encrypted labels of their ids, and what is encrypted is not what was sent."""
    hidden, found, ids = np.zeros(0, np.uint32), np.zeros(0, np.uint32), list[str]()
    for batch in blocks([b"c01000"]):
        for row in batch.to_pylist():
            assert row["kind"] == LABELLED
            lengths = np.frombuffer(row["lengths"], "<u2")
            ends = np.cumsum(lengths)
            ids += [row["text"][b - n : b].decode() for b, n in zip(ends, lengths, strict=True)]
            hidden = np.concatenate([hidden, np.frombuffer(row["labels"][12:-16], "<u4")])
            found = np.concatenate([found, labels_of(row["labels"], KEY)])
    wanted = LABELS[[int(name[1:]) for name in ids]]
    assert (hidden == wanted).mean() < 0.01
    assert found.tolist() == wanted.tolist()


def test_ranges_of_ids_are_sealed_in_order(tmp_path: Path) -> None:
    records = sealed(tmp_path, [b"c01000", b"c02"])
    tables = list[pa.Table]()
    for record in records:
        path = tmp_path / f"{record['name']}.parquet"
        with read_object(path, KEY, object_name(ROOM, record["name"])) as source:
            tables.append(pq.read_table(source))
    whole = pa.concat_tables(tables).combine_chunks()
    assert [r["rows"] for r in records] == [1000, 1000, 1000]
    assert whole["example_id"].to_pylist() == IDS
    assert whole["position"].to_pylist() == LABELS.tolist()
    low, high = read_run(tmp_path / f"{records[0]['name']}.run")
    assert len(low) == 1000
    assert (np.diff(high.astype(object)) >= 0).all()


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(st.lists(texts, min_size=1, max_size=40), st.lists(texts, max_size=6))
def test_a_range_is_where_bytes_say(ids: list[str], bounds: list[str]) -> None:
    rising = sorted({b.encode() for b in bounds})
    found = ranges_of(pa.array(ids, pa.string()), np.array(rising, "S") if rising else np.zeros(0, "S1"))
    assert found.tolist() == [bisect.bisect_right(rising, i.encode()) for i in ids]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=14), max_size=40), texts)
def test_ids_are_sorted_bytewise(ids: list[str], prefix: str) -> None:
    """Also those that agree in the bytes that are compared first, or end in zero bytes."""
    ids = [*ids, *(prefix + name for name in ids), *ids[:2]]
    order = order_of(pa.array(ids, pa.string()))
    assert sorted(order.tolist()) == list(range(len(ids)))
    assert [ids[i].encode() for i in order] == sorted(name.encode() for name in ids)


# --- the draw ------------------------------------------------------------------------------------------------


def sliced(folder: Path) -> SlicedLabels:
    (record,) = sealed(folder, [])
    path = str(folder / f"{record['name']}.parquet")
    return SlicedLabels(
        (Slice(path, object_name(ROOM, record["name"]), KEY, 0, 0, record["rows"], record["id_bytes"]),), None
    )


def drawing(labels: SlicedLabels, folder: Path) -> Drawing:
    return Drawing(labels, rr_channel(RULES.domain, Epsilon.parse("1")), str(folder))


def test_a_file_keeps_all_space_that_was_set_aside_until_it_is_taken(tmp_path: Path) -> None:
    labels = sliced(tmp_path)
    with staging(tmp_path) as folder:
        (record,) = drawing(labels, folder).record(0).to_pylist()
        (path,) = folder.iterdir()
        assert path.name == record["name"]
        part = labels.slices[0]
        assert path.stat().st_size == largest_encoding(part.rows, part.id_bytes, part.rows) > record["bytes"]
        take(path, record["bytes"], tmp_path / "message.parquet")
    data = (tmp_path / "message.parquet").read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (record["bytes"], record["sha256"])
    assert (record["rows"], record["first"], record["last"]) == (3000, IDS[0], IDS[-1])
    assert pq.read_table(tmp_path / "message.parquet")["example_id"].to_pylist() == IDS


def test_space_is_set_aside_before_a_label_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    chunks = SlicedLabels.chunks

    def watched(self: SlicedLabels, number: int) -> Any:
        seen.extend(path.stat().st_size for path in folder.iterdir())
        return chunks(self, number)

    labels = sliced(tmp_path)
    monkeypatch.setattr(SlicedLabels, "chunks", watched)
    with staging(tmp_path) as folder:
        drawing(labels, folder).record(0)
    assert len(seen) == 1
    assert seen[0] > 1 << 20


def test_two_attempts_draw_under_keys_of_their_own(tmp_path: Path) -> None:
    labels = sliced(tmp_path)
    with staging(tmp_path) as folder:
        task = drawing(labels, folder)
        one, other = (task.record(0).to_pylist()[0]["sha256"] for _ in range(2))
    assert one != other


def test_where_the_folder_is_gone_nothing_is_written(tmp_path: Path) -> None:
    labels = sliced(tmp_path)
    with staging(tmp_path) as folder:
        task = drawing(labels, folder)
    with pytest.raises(TaskFailed, match=r"^FileNotFoundError$"):
        task.record(0)
    assert not folder.exists()


@pytest.mark.parametrize("error", [OSError("c00001 has 7"), MemoryError("c00001 has 7"), ValueError("c00001 has 7")])
def test_a_task_that_fails_leaves_no_file_and_quotes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What labels may have decided is told, not raised: Spark would try it again."""
    labels = sliced(tmp_path)

    def broken(_self: SlicedLabels, _number: int) -> Iterator[Any]:
        raise error
        yield

    monkeypatch.setattr(SlicedLabels, "chunks", broken)
    with staging(tmp_path) as folder:
        task = drawing(labels, folder)
        if isinstance(error, ValueError):
            assert task.record(0).to_pylist()[0]["problem"] == "ValueError"
        else:
            with pytest.raises(TaskFailed, match=f"^{type(error).__name__}$"):
                task.record(0)
        assert not list(folder.iterdir())


def test_a_histogram_counts_cells(tmp_path: Path) -> None:
    counting = Counting(sliced(tmp_path), np.array([0, 3, 4]), 11)
    (record,) = counting.record(0).to_pylist()
    counts = np.bincount(LABELS, minlength=11)
    assert np.frombuffer(record["counts"], "<i8").tolist() == [counts[:3].sum(), counts[3], counts[4:].sum()]


# --- the fold of events ---------------------------------------------------------------------------------------

EVENT_KEYS = EventKeys(bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48)))
EVENT_RULE = EventRule(data_set_id="shop", types={"purchase": "+"}, take="count")


def folding(own: bytes = bytes(16), bits: int = 2) -> Folding:
    names = ("data_set_id", "timestamp", "event_type", "id", "user_data.click_id")
    bounds = np.array([b"c00100"], "S")
    rules = ArrivalRules("id", None, RULES.domain, "clip")
    sets = data_sets([EVENT_RULE])
    return Folding(EVENT_RULE, sets, names, EVENT_KEYS, own, KEY, {77: 0, 99: 1}, bits, rules, 0, bounds)


def event_batches(n: int = 600) -> list[pa.RecordBatch]:
    """Two events of each of half as many clicks, one of them without an id, in two files whose rows are mixed."""
    mixed = np.random.default_rng(4).permutation(n)
    columns = {
        "member_0": pa.array(["shop"] * n),
        "member_1": pa.array(mixed + 1_700_000_000),
        "member_2": pa.array(["purchase"] * n),
        "member_3": pa.array([None if i % 2 else f"order-{i}" for i in mixed.tolist()], pa.string()),
        "member_4": pa.array([IDS[i // 2] for i in mixed.tolist()]),
        "file": pa.array(np.where(mixed % 2, 77, 99)),
        "row": pa.array(mixed),
    }
    whole = pa.record_batch(list(columns.values()), list(columns))
    return [whole.slice(0, 250), whole.slice(250)]


def events_of(found: list[pa.RecordBatch]) -> dict[int, set[bytes]]:
    """The events of each part."""
    parts: dict[int, set[bytes]] = {}
    for row in (row for batch in found for row in batch.to_pylist()):
        records = np.frombuffer(disclosed(KEY, row["labels"], PLACE), ORDERED)
        parts.setdefault(row["part"], set()).update(record.tobytes() for record in records)
    return parts


def test_an_event_arrives_alike_in_every_attempt_and_not_as_it_is() -> None:
    """Also one without an id: it is in the same part, so that it is neither lost nor counted twice."""
    found = [list(folding().arrive(iter(event_batches()))) for _ in range(2)]
    first, again = map(events_of, found)
    assert first == again
    assert sum(map(len, first.values())) == 600
    assert len(first) == 4
    again = events_of(list(folding(bytes(range(16))).arrive(iter(event_batches()))))
    assert first != again  # the control: under another key those without an id are elsewhere
    whole = b"".join(value for batch in found[0] for row in batch.to_pylist() for value in list(row.values())[2:])
    assert len(whole) > 600 * ORDERED.itemsize
    for word in (b"order-", b"c00", b"purchase", b"shop", (1_700_000_300).to_bytes(8, "little")):
        assert word not in whole


@pytest.mark.parametrize("bits", [0, 3])
def test_events_are_folded_part_by_part(bits: int) -> None:
    job = folding(bits=bits)
    arrived = list(job.arrive(iter(event_batches())))
    listed = list(job.enlist(iter([pa.record_batch([pa.array([*IDS[:200], "nobody"])], ["id"])])))
    merged = [batch for part in range(1 << bits) for batch in job.merge(of_part(arrived, part))]
    labels, counts = dict[str, int](), b""
    for part in range(1 << bits):
        for batch in job.fold(of_part([*merged, *listed], part)):
            for row in (tuple(row.values()) for row in batch.to_pylist()):
                if row[1] == COUNTS:
                    counts += row[4]
                else:
                    ids = ids_of([row]).to_pylist()
                    assert {name >= "c00100" for name in ids} == {bool(row[0])}  # by ranges of ids
                    labels |= dict(zip(ids, labels_of(row[4], KEY).tolist(), strict=True))
    assert labels == dict.fromkeys(IDS[:200], 2) | {"nobody": 0}
    shown = {name: count for name, count in counts_of(counts, KEY).items() if count}
    assert shown == {"records": 600, "not_listed": 200, "counted": 400, "examples": 200}


def test_a_refused_event_is_named_by_its_file_and_row() -> None:
    batches = event_batches()
    times = batches[1]["member_1"].to_numpy().copy()
    times[17] = -98_765
    bad = batches[1].set_column(1, "member_1", pa.array(times))
    (block,) = list(folding().arrive(iter([batches[0], bad])))
    (row,) = block.to_pylist()
    file, at = (99, 77)[batches[1]["row"][17].as_py() % 2], batches[1]["row"][17].as_py()
    place = {"file": {77: 0, 99: 1}[file], "row": at, "field": "timestamp", "rule": "must be whole seconds since 1970"}
    assert (row["kind"], json.loads(row["text"])) == (REFUSED, place)
    assert "98765" not in str(row)
    with pytest.raises(TaskFailed, match=r"^KeyError$"):  # a file that came meanwhile
        list(folding().arrive(iter([bad.set_column(5, "file", pa.array([5] * bad.num_rows))])))
