"""Upserts and deletions before the seal: the last record of an id counts, whatever the order of everything else."""

from __future__ import annotations

import errno
import itertools
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from label_dp.domain import Domain
from label_dp.errors import Busy, Unavailable
from labels_party.labels.batches import SEALED, UPSERT, Batch
from labels_party.labels.seal import IncompleteLabels, SealedLabels
from tests.support.asking import population as declared
from tests.support.labels import LabelsParty

Upload = tuple[str, dict[str, float]]
NAMES = itertools.count()


def table(labels: dict[str, float]) -> pa.Table:
    return pa.table({"example_id": list(labels), "label": pa.array(labels.values(), pa.float64())})


def open_batch(party: LabelsParty, presence: str = "public", missing: str | None = "0") -> Batch:
    s = party.services
    name = f"p{next(NAMES)}"
    population = declared(name, name, Domain.parse("0:10"), "1", missing_label=missing)

    def make(connection: Any) -> Batch:
        return s.batches.create(connection, s.populations.create(connection, population, "test"), presence)

    return s.database.write("test.batch", make)


def send(party: LabelsParty, batch: Batch, uploads: list[Upload]) -> None:
    for mode, labels in uploads:
        if mode == "delete":
            party.services.intake.delete_labels(batch.id, [table(labels).select(["example_id"])], owner=True)
        else:
            party.services.intake.add_labels(batch.id, table(labels), mode=mode, owner=True)


def sealed(party: LabelsParty, batch: Batch) -> dict[str, int]:
    """Ids in the order of the sealed file with the positions of their labels."""
    s = party.services
    s.sealer.seal(batch.id, "test")
    (segment,) = s.database.read("test.segments", lambda c: s.batches.segments(c, batch.id, SEALED))
    found = list(SealedLabels(s.vault, segment.key).chunks())
    ids = [i for chunk, _ in found for i in chunk.to_pylist()]
    index = [int(x) for _, positions in found for x in positions]
    assert ids == sorted(ids, key=lambda i: i.encode())
    assert len(set(ids)) == len(ids) == segment.rows
    return dict(zip(ids, index, strict=True))


def test_a_later_record_replaces_and_a_deletion_makes_the_label_missing(party_on: LabelsParty) -> None:
    batch = open_batch(party_on, missing="7")
    send(
        party_on,
        batch,
        [
            ("insert", {"a": 1, "b": 2, "c": 3, "é": 4}),
            (UPSERT, {"b": 9, "new": 5}),
            ("delete", {"c": 0}),
            (UPSERT, {"a": 10}),
        ],
    )
    assert sealed(party_on, batch) == {"a": 10, "b": 9, "c": 7, "new": 5, "é": 4}


def test_a_label_after_its_deletion_counts_again(party: LabelsParty) -> None:
    batch = open_batch(party)
    send(party, batch, [("insert", {"a": 1}), ("delete", {"a": 0}), (UPSERT, {"a": 6})])
    assert sealed(party, batch) == {"a": 6}


def test_a_deleted_label_without_a_missing_value_keeps_the_batch_open(party: LabelsParty) -> None:
    batch = open_batch(party, missing=None)
    send(party, batch, [("insert", {"a": 1, "b": 2}), ("delete", {"b": 0})])
    with pytest.raises(IncompleteLabels) as refused:
        party.services.sealer.seal(batch.id, "test")
    assert refused.value.extras() == {"examples_without_label": ["b"]}
    assert not list((party.home / "labels" / batch.id).glob("sealed*"))
    send(party, batch, [(UPSERT, {"b": 3})])
    assert sealed(party, batch) == {"a": 1, "b": 3}


def test_listed_ids_with_corrections(party_on: LabelsParty) -> None:
    batch = open_batch(party_on, "id-list", missing="8")
    party_on.services.intake.put_examples(batch.id, table(dict.fromkeys("dcba", 0)).select(["example_id"]))
    send(party_on, batch, [("insert", {"a": 1, "b": 2}), (UPSERT, {"b": 3, "c": 4}), ("delete", {"a": 0})])
    assert sealed(party_on, batch) == {"a": 8, "b": 3, "c": 4, "d": 8}


IDS = st.sampled_from([f"{c}{d}" for c in "axé" for d in "012"])
LABELS = st.dictionaries(IDS, st.integers(0, 10), min_size=1, max_size=6)
UPLOADS = st.lists(st.tuples(st.sampled_from([UPSERT, "delete"]), LABELS), min_size=1, max_size=6)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(UPLOADS, st.randoms(use_true_random=False))
def test_the_result_is_that_of_a_dictionary_in_any_order_of_rows(party: LabelsParty, uploads: Any, rng: Any) -> None:
    expected: dict[str, int] = {}
    for mode, labels in uploads:
        expected |= dict.fromkeys(labels, 0) if mode == "delete" else labels
    found = []
    for _ in range(2):
        shuffled = []
        for mode, labels in uploads:
            rows = list(labels.items())
            rng.shuffle(rows)
            shuffled.append((mode, dict(rows)))
        batch = open_batch(party)
        send(party, batch, shuffled)
        found.append(sealed(party, batch))
    assert found[0] == found[1] == expected


def test_many_corrections_across_chunks_of_the_sort(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labels_party.labels.by_id.sort.BLOCK_ROWS", 64)
    monkeypatch.setattr(party.services.sealer.sort, "memory_mb", 0)  # every block is a run on disk
    rng = np.random.default_rng(5)
    batch, expected = open_batch(party, missing="10"), {}
    for mode in (UPSERT, "delete", UPSERT, UPSERT, "delete"):
        ids = [f"{i:05d}" for i in rng.choice(3000, 1200, replace=False)]
        labels = dict(zip(ids, rng.integers(0, 10, len(ids)).tolist(), strict=True))
        send(party, batch, [(mode, labels)])
        expected |= dict.fromkeys(labels, 10) if mode == "delete" else labels
    assert sealed(party, batch) == expected


def test_nothing_that_the_sort_writes_shows_a_label(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies on a disk meanwhile looks random, and the same labels twice look different (invariant
    budget-outlives-labels)."""
    written: dict[int, bytes] = {}
    write = os.write

    def watch(file: int, data: Any) -> int:
        written[file] = written.get(file, b"") + bytes(data)
        return write(file, data)

    batch = open_batch(party)
    same = {f"i{i:04d}": 3 for i in range(2000)}
    send(party, batch, [(UPSERT, same), (UPSERT, same)])
    monkeypatch.setattr("labels_party.labels.spool.IN_MEMORY", 0)
    monkeypatch.setattr("labels_party.labels.spool.CHUNK", 64)
    monkeypatch.setattr("labels_party.labels.by_id.sort.BLOCK_ROWS", 1)
    monkeypatch.setattr(party.services.sealer.sort, "memory_mb", 0)
    monkeypatch.setattr("labels_party.labels.spool.os.write", watch)
    assert sealed(party, batch) == same
    first, second = (np.frombuffer(data, np.uint8) for data in written.values() if len(data) > 2000 * 13)
    assert len(first) == len(second)
    for found in (first, second, first ^ second):
        counts = np.bincount(found, minlength=256)
        expected = len(found) / 256
        # χ² with 255 degrees of freedom exceeds 400 by chance once in 10⁷
        assert ((counts - expected) ** 2 / expected).sum() < 400
        # of a hundred ids not one lies there; so many random bytes hold one by chance once in 10⁵ tries
        assert not re.search(rb"i00\d\d", found.tobytes()), len(found)


def test_one_batch_is_sealed_at_a_time(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seal takes the whole memory for sorts. One that waits in vain may be asked for again."""
    first, second = open_batch(party), open_batch(party)
    for batch in (first, second):
        send(party, batch, [("insert", {"a": 1})])
    sealer, refusals = party.services.sealer, []
    monkeypatch.setattr(sealer.sort, "patience", 0.0)

    def sealed_beside() -> None:
        with pytest.raises(Busy) as refusal:
            sealer.seal(second.id, "test")
        refusals.append(str(refusal.value))

    def seal_another(name: str) -> None:
        if name == "seal.prepared" and not refusals:
            beside = threading.Thread(target=sealed_beside)
            beside.start()
            beside.join()

    monkeypatch.setattr(party.services.database, "fault", seal_another)
    assert sealed(party, first) == {"a": 1}
    assert refusals == ["Another batch is being sealed, which takes the memory for sorts; try again in a moment."]
    party.services.intake.add_labels(second.id, table({"b": 2}), owner=True)
    assert sealed(party, second) == {"a": 1, "b": 2}


def test_the_files_of_a_refused_seal_are_gone(party: LabelsParty, tmp_path: Path) -> None:
    batch = open_batch(party, missing=None)
    send(party, batch, [(UPSERT, {"a": 1}), ("delete", {"a": 0})])
    with pytest.raises(IncompleteLabels):
        party.services.sealer.seal(batch.id, "test")
    assert not list(party.services.home.spill.iterdir())


def test_a_failing_sort_is_a_sentence_and_quotes_nothing(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = open_batch(party)
    send(party, batch, [("insert", {"secret-id": 1})])

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "secret-id")

    monkeypatch.setattr("labels_party.labels.by_id.sort.DiskRun", full)
    monkeypatch.setattr("labels_party.labels.by_id.sort.BLOCK_ROWS", 1)
    monkeypatch.setattr(party.services.sealer.sort, "memory_mb", 0)
    with pytest.raises(Unavailable, match="No space left on device") as failed:
        party.services.sealer.seal(batch.id, "test")
    assert "secret-id" not in failed.value.detail


def test_an_object_that_vanishes_during_the_sort_is_noticed(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have replaced it: the seal looks again, and succeeds."""
    batch = open_batch(party)
    send(party, batch, [("insert", {"a": 1})])
    vault = party.services.vault
    scan, gone = vault.scan, []

    def vanishing(key: str, *where: Any, **which: Any) -> Any:
        if not gone and "labels-" in key:
            gone.append(key)
            raise FileNotFoundError(key)
        yield from scan(key, *where, **which)

    monkeypatch.setattr(vault, "scan", vanishing)
    assert sealed(party, batch) == {"a": 1}
    assert gone
