"""The ledger under load and under faults: the cap of 64 clients on both databases, and a thousand random kills."""

from __future__ import annotations

from pathlib import Path

from tests.soak.report import Report
from tests.support.labels import LabelsParty, label_table
from tests.support.ledger_race import race

CLIENTS, SPENDS, CAP, PROCESSES = 64, 1000, 1000, 4


def test_spends_against_a_cap(database_url: str, report: Report, tmp_path: Path) -> None:
    """Not bounded by the seconds of a part: the count is the point."""
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as party:
        batch = party.sealed_batch(label_table(5), lifetime="0.000001")  # 1,000 nano-ε
        found = race(party.settings.url, "shop", batch, clients=CLIENTS, spends=SPENDS, processes=PROCESSES)
        granted, tried = sum(f.granted for f in found), sum(f.granted + f.refused for f in found)
        limit = f"{granted:,} granted of a cap of {CAP:,}, {party.services.database.dialect}"
        report.row(tried, tried - abs(granted - CAP), limit)
        assert (granted, tried) == (CAP, CLIENTS * SPENDS)
        assert party.spent(batch) == "0.000001"
        count, _ = party.services.database.read("v", party.services.audit.verify)
        assert count == 3 + CAP
