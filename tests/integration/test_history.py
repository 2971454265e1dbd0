"""No id is in two batches of a label, however their digests were merged, and whichever prefixes they declared."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from label_dp.errors import OverlappingBatch
from labels_party.labels import compaction
from labels_party.labels.disjoint import SameExamples
from labels_party.labels.sweep import DAY
from tests.support.history import Past
from tests.support.labels import LabelsParty
from tests.support.ledger_faults import Crash, Faults

NUMBERS = itertools.count()
PREFIXES = (None, "a", "a/1", "a/2", "b")
IDS = [f"{start}/{i}" for start in ("a/1", "a/2", "a/3", "b", "c") for i in range(4)]
POINTS = ("runs.merged", "runs.merge:begin", "runs.merge:before-commit", "runs.merge:after-commit")


@st.composite
def seals(draw: st.DrawFn) -> list[tuple[str | None, frozenset[str], bool]]:
    """Prefix, ids, and whether the merges in progress end before the next seal."""
    found = []
    for _ in range(draw(st.integers(2, 12))):
        prefix = draw(st.sampled_from(PREFIXES))
        ids = [i for i in IDS if i.startswith(prefix or "")]
        found.append((prefix, draw(st.frozensets(st.sampled_from(ids), min_size=1, max_size=3)), draw(st.booleans())))
    return found


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of about one size are merged."""
    monkeypatch.setattr(compaction, "FACTOR", 2)


@pytest.fixture
def past(party_on: LabelsParty, pairs: None) -> Past:
    return Past(party_on.services, "y")


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seals())
def test_a_seal_is_refused_exactly_where_an_id_came_before(party_on: LabelsParty, pairs: None, found: Any) -> None:
    past = Past(party_on.services, f"label {next(NUMBERS)}")
    sealed: dict[str, frozenset[str]] = {}
    for prefix, ids, wait in found:
        run, meets = past.run_of(ids), {name for name, held in sealed.items() if held & ids}
        if meets:
            with pytest.raises(OverlappingBatch) as refused:
                past.seal(run, prefix)
            same = [name for name in meets if sealed[name] == ids]
            assert [getattr(refused.value, "batch", None)] == (same or [None])
            assert any(f"'{name}'" in refused.value.detail for name in meets)
        else:
            sealed[past.seal(run, prefix)] = ids
        if wait:
            party_on.services.sealer.compaction.wait()
            past.check()
    party_on.services.sealer.compaction.wait()
    past.check()


def test_runs_grow_as_the_logarithm_and_every_batch_is_named(past: Past) -> None:
    named = []
    for i in range(33):
        named.append(past.seal(past.run_of([f"{i}-{j}" for j in range(4)])))
        past.services.sealer.compaction.wait()
        assert past.runs() <= 1 + (i + 1).bit_length()
    history = past.services.sealer.disjoint.history
    assert past.services.database.read("past.since", lambda c: history.since(c, past.draft(), 33)) == []
    for i in (0, 15, 32):
        with pytest.raises(SameExamples) as same:
            past.seal(past.run_of([f"{i}-{j}" for j in range(4)]))
        assert same.value.batch == named[i]
        with pytest.raises(OverlappingBatch, match=named[i]):
            past.seal(past.run_of([f"{i}-0", "new"]))


def test_batches_of_other_prefixes_are_not_looked_into_and_not_merged(past: Past) -> None:
    for day in range(12):
        past.seal(past.run_of([f"2030-01-{day:02}/{i}" for i in range(3)]), f"2030-01-{day:02}/")
    past.services.sealer.compaction.wait()
    assert past.runs("2030-01-12/") == 0
    assert past.runs("2030-01-05/") == past.runs("2030-01-05/x") == 1
    assert past.runs("2030-01-0") == 10
    assert past.runs("_") == past.runs("%") == 0  # no patterns of the database
    assert past.runs() == 12
    past.seal(past.run_of(["anything"]))  # it had to look into all of them
    past.services.sealer.compaction.wait()
    assert past.runs() <= 4
    past.check()


def test_without_its_merged_runs_a_seal_reads_those_of_the_batches(past: Past) -> None:
    vault = past.services.vault
    first = past.seal(past.run_of(["a-0", "a-1"]))
    past.seal(past.run_of(["b-0", "b-1"]))
    past.services.sealer.compaction.wait()
    (merged,) = vault.objects.room.glob("history-*/*.run")
    merged.write_bytes(merged.read_bytes()[:32])  # a copy that was cut short
    for _ in range(2):
        with pytest.raises(OverlappingBatch, match=first):
            past.seal(past.run_of(["a-0", "new"]))
        past.check()
        past.seal(past.run_of([f"new-{next(NUMBERS)}", f"more-{next(NUMBERS)}"]))
        past.services.sealer.compaction.wait()
        (merged,) = vault.objects.room.glob("history-*/*.run")  # again
        merged.unlink()


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_during_a_merge_loses_nothing(tmp_path: Path, database_url: str, pairs: None, point: str) -> None:
    faults = Faults()
    with LabelsParty(tmp_path / "home", database_url=database_url, faults=faults, worker=False) as first:
        past = Past(first.services, "y")
        one = past.seal(past.run_of(["a-0", "a-1"]))
        sealer = first.services.sealer
        sealer.compaction.close()
        past.seal(past.run_of(["b-0", "b-1"]))
        tiers = sealer.tiers(past.draft())
        chosen = first.services.database.read("look", tiers.runs)
        faults.at(point)
        with pytest.raises(Crash):
            sealer.compaction._merge(tiers, chosen)
        faults.calm()
    with LabelsParty(tmp_path / "home", database_url=database_url, worker=False) as again:
        past.services = again.services
        past.check()
        with pytest.raises(SameExamples) as same:
            past.seal(past.run_of(["a-0", "a-1"]))
        assert same.value.batch == one
        past.seal(past.run_of(["c-0", "c-1"]))
        again.services.sealer.compaction.wait()
        assert past.runs() == (2 if "after" in point else 1)
        past.check()
        _age(again.services.vault.objects.room)
        again.services.sweep.run()
        assert len(list(again.services.vault.objects.room.glob("history-*/*"))) == 1
        past.check()


def test_of_two_merges_of_the_same_runs_one_counts(past: Past) -> None:
    s = past.services
    s.sealer.compaction.close()
    for i in range(4):
        past.seal(past.run_of([f"{i}-0", f"{i}-1"]))
    tiers = s.sealer.tiers(past.draft())
    chosen = s.database.read("look", tiers.runs)
    assert s.sealer.compaction._merge(tiers, chosen[:2])
    assert not s.sealer.compaction._merge(tiers, chosen[1:])
    assert past.runs() == 3
    assert len(list(s.vault.objects.room.glob("history-*/*"))) == 1
    past.check()


def test_a_purged_batch_still_counts_in_a_merged_run(past: Past) -> None:
    s = past.services
    named = [past.seal(past.run_of([f"{i}-0", f"{i}-1"])) for i in range(2)]
    s.sealer.compaction.wait()
    for name in named:  # also the one whose segment names the merged run
        s.retention.purge(name, "test")
    assert past.runs() == 1
    past.check()
    with pytest.raises(SameExamples):
        past.seal(past.run_of(["1-0", "1-1"]))


def test_two_seals_at_once_while_runs_are_merged_away(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    """All look, then what they saw is merged away, then they compare. Two share an id, one has an old id: one seals."""
    s = past.services
    disjoint, looked = s.sealer.disjoint, threading.Barrier(4)
    for i in range(6):
        past.seal(past.run_of([f"{i}-0", f"{i}-1"]))
    s.sealer.compaction.wait()
    compared = disjoint._compared
    first = threading.local()

    def late(run: Any, held: Any) -> bool:
        if not getattr(first, "done", False):
            first.done = True
            looked.wait(60)
            looked.wait(60)
        return compared(run, held)

    monkeypatch.setattr(disjoint, "_compared", late)
    ended: list[object] = []

    def seal(ids: list[str]) -> None:
        try:
            ended.append(past.seal(past.run_of(ids)))
        except Exception as error:
            ended.append(type(error))

    threads = [threading.Thread(target=seal, args=(ids,)) for ids in (["new", "x"], ["new", "y"], ["3-0", "z"])]
    for thread in threads:
        thread.start()
    looked.wait(60)
    tiers = s.sealer.tiers(past.draft())
    assert s.sealer.compaction._merge(tiers, s.database.read("look", tiers.runs))
    looked.wait(60)
    for thread in threads:
        thread.join()
    assert sorted(type(end).__name__ for end in ended) == ["str", "type", "type"]
    assert ended.count(OverlappingBatch) == 2
    s.sealer.compaction.wait()
    past.check()


def test_many_seals_at_once_leave_disjoint_batches(past: Past) -> None:
    ended: list[str] = []
    rng = np.random.default_rng(5)
    wanted = [sorted({f"i-{i}" for i in rng.integers(0, 40, 3)}) for _ in range(24)]

    def seal(part: list[list[str]]) -> None:
        for ids in part:
            try:
                past.seal(past.run_of(ids))
                ended.extend(ids)
            except OverlappingBatch:
                pass

    threads = [threading.Thread(target=seal, args=(wanted[i::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    past.services.sealer.compaction.wait()
    assert len(set(ended)) == len(ended) > 3
    past.check()


def _age(root: Path) -> None:
    for path in root.rglob("*"):
        old = path.stat().st_mtime - 2 * DAY
        os.utime(path, (old, old))
