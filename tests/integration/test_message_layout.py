"""The bytes of a message depend on its ids and what was drawn, not on how many records or labels there were."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.domain import Domain
from labels_party.labels import vault
from labels_party.labels.by_id import in_memory
from labels_party.labels.digests import kernels
from labels_party.message import engine, parts
from tests.support.asking import population as parse_population
from tests.support.labels import LabelsParty

IDS = [f"click-{i:05d}" for i in range(1000)]


def first_output(_channel: Any, index: Any) -> Any:
    """Every draw is the first output, so that two messages of the same ids must be the same."""
    return np.zeros(len(index), np.uint8)


def labels(first: int, last: int, step: int = 1) -> pa.Table:
    ids = IDS[first:last:step]
    return pa.table({"example_id": ids, "label": [float(i % 11) for i in range(len(ids))]})


def every_label(s: Any, batch: str) -> None:
    s.intake.add_labels(batch, labels(0, 1000), owner=True)


def every_third(s: Any, batch: str) -> None:
    s.intake.add_labels(batch, labels(0, 1000, 3), owner=True)


def none_at_all(_s: Any, _batch: str) -> None:
    pass


def many_corrections(s: Any, batch: str) -> None:
    s.intake.add_labels(batch, labels(0, 1000), owner=True)
    for _ in range(5):
        s.intake.add_labels(batch, labels(0, 400), mode="upsert", owner=True)
    s.intake.delete_labels(batch, [labels(700, 900).select(["example_id"])], owner=True)


def erased(s: Any, batch: str) -> None:
    s.intake.add_labels(batch, labels(0, 1000), owner=True)
    s.erasures.request("shop", IDS[100:300], "test")


def test_rows_groups_and_size_are_those_of_the_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the sort's own blocks do depend on which records came
    monkeypatch.setattr(type(kernels), "worth", lambda *_: True)
    monkeypatch.setattr(in_memory, "PART", 16)
    monkeypatch.setattr(in_memory, "MOST", 32)
    monkeypatch.setattr(vault, "ROW_GROUP", 256)
    monkeypatch.setattr(parts, "FILE_BYTES", parts.largest_encoding(256, 256 * 40, 256))  # cut where ids say
    monkeypatch.setattr(engine, "sample", first_output)
    found = {}
    for upload in (every_label, every_third, none_at_all, many_corrections, erased):
        with LabelsParty(tmp_path / upload.__name__, worker=False) as party:
            s = party.services
            shop = parse_population("shop", "revenue", Domain.parse("0:10"), "9", missing_label=0)
            made = s.database.write("population", lambda c, s=s, shop=shop: s.populations.create(c, shop, "test"))
            batch = s.database.write("batch", lambda c, s=s, made=made: s.batches.create(c, made, "id-list")).id
            s.intake.put_examples(batch, pa.table({"example_id": IDS}))
            upload(s, batch)
            s.sealer.seal(batch, "test")
            release = party.release(batch, "1", prior="uniform")
            files = sorted(party.bundle(release).path.glob("message*.parquet"))
            assert len(files) == 4
            data = b"".join(path.read_bytes() for path in files)
            (sealed,) = (party.home / "labels" / batch).glob("sealed-*.parquet")
            groups = tuple(part.num_rows for part in s.vault.scan(f"{batch}/{sealed.name}"))
            assert groups == (256, 256, 256, 232)
            found[upload.__name__] = (len(data), hashlib.sha256(data).hexdigest())
    assert len(set(found.values())) == 1, found
