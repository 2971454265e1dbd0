"""The prior that comes with a message: what a signed file may not do to whoever reads it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.bootstrap import Services
from features_party.receive.accepted import read_prior
from label_dp.documents.canonical import digest
from label_dp.errors import MalformedManifest
from tests.support.messages import Sender, features_party, one_bit

IDS = [f"c{i:03d}" for i in range(40)]
LABELS = np.arange(40, dtype=np.float64) % 11
VALUES = np.arange(11, dtype=np.float64)
SHARES = np.full(11, 1 / 11)
MIB = 1 << 20


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return features_party(tmp_path / "home")


def accepted(services: Services, folder: Path, table: pa.Table, rows: int | None = None, **how: Any) -> Any:
    """A message, correctly signed by a pinned key, with this table for its prior; `rows` are what its manifest says."""
    sender, path = Sender(), folder / "m.parquet"
    odd = folder / "m.odd.parquet"
    pq.write_table(table, odd, **how)
    data = odd.read_bytes()

    def name_it(document: dict[str, Any]) -> None:
        (entry,) = (f for f in document["files"] if f["role"] == "prior")
        entry |= {"bytes": len(data), "rows": table.num_rows if rows is None else rows, "sha256": digest(data)}

    sender.write(path, IDS, LABELS, one_bit(), prior=SHARES, edit=name_it)
    odd.rename(folder / "m.prior.parquet")
    return services.messages.accept(path, sender.key.public)


def floats(labels: Any = VALUES, shares: Any = SHARES) -> pa.Table:
    return pa.table({"label": pa.array(labels, pa.float64()), "probability": pa.array(shares, pa.float64())})


def test_a_prior_is_read_whatever_its_row_groups_and_encoding(services: Services, tmp_path: Path) -> None:
    uneven = np.arange(1.0, 12.0) / 66
    message = accepted(services, tmp_path, floats(VALUES[::-1], uneven[::-1]), row_group_size=3, compression="none")
    assert message.prior() == pytest.approx(uneven)


LONG = "x" * (8 * MIB)
BOMBS: dict[str, tuple[Callable[[], pa.Table], int | None]] = {
    "a long text in a dictionary": (lambda: pa.table({"label": pa.array([LONG] * 11), "probability": SHARES}), None),
    "a third column": (lambda: floats().append_column("more", pa.array([LONG] * 11)), None),
    "many rows that the manifest hides": (lambda: floats(np.zeros(8 * MIB), np.zeros(8 * MIB)), 11),
    "lists of numbers": (lambda: pa.table({"label": pa.array([[0.0] * MIB] * 11), "probability": SHARES}), None),
}


def test_a_prior_of_more_rows_than_labels_is_refused_with_its_manifest(services: Services, tmp_path: Path) -> None:
    with pytest.raises(MalformedManifest, match="more rows than the domain has labels"):
        accepted(services, tmp_path, floats(np.zeros(8 * MIB), np.zeros(8 * MIB)), compression="zstd")
    assert services.database.read("look", services.audit.events) == []


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_before_it_is_decoded(what: str, services: Services, tmp_path: Path) -> None:
    make, rows = BOMBS[what]
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())  # what it takes to make the bomb is not counted
    try:
        message = accepted(services, tmp_path, make(), rows, compression="zstd")
    finally:
        pa.set_memory_pool(usual)
    assert (message.folder / "prior.parquet").stat().st_size < MIB
    before = usual.max_memory()
    tracemalloc.start()
    try:
        with pytest.raises(MalformedManifest):
            message.prior()
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert usual.max_memory() - before < 4 * MIB


@pytest.mark.parametrize(
    "table",
    [
        floats(VALUES, [None, *SHARES[1:]]),
        floats([None, *VALUES[1:]]),
        floats(VALUES, [np.nan, *SHARES[1:]]),
        floats(VALUES, [np.inf, *SHARES[1:]]),
        floats(VALUES, [-1 / 11, 3 / 11, *SHARES[2:]]),
        floats(VALUES, SHARES * 0.9),
        floats(VALUES + 0.5),
        floats([1.0, *VALUES[1:]]),
        floats().rename_columns(["label", "share"]),
        floats().select(["probability", "label"]),
        pa.table({"label": pa.array(VALUES, pa.float32()), "probability": SHARES}),
        pa.table({"label": [str(v) for v in VALUES], "probability": SHARES}),
    ],
)
def test_what_is_no_distribution_over_the_domain_is_refused(
    services: Services, tmp_path: Path, table: pa.Table
) -> None:
    with pytest.raises(MalformedManifest):
        accepted(services, tmp_path, table).prior()


def test_rows_are_those_of_the_manifest(services: Services, tmp_path: Path) -> None:
    with pytest.raises(MalformedManifest, match="rows"):
        accepted(services, tmp_path, floats(), 10).prior()


def test_no_parquet_at_all_is_a_sentence(services: Services, tmp_path: Path) -> None:
    message = accepted(services, tmp_path, floats())
    (tmp_path / "other").write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    with pytest.raises(MalformedManifest, match="cannot be read"):
        read_prior(tmp_path / "other", message.manifest)
