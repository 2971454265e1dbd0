"""At most N examples per unit keep their label over a population's lifetime, chosen by id order before labels count."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from label_dp.audit.events import CHARGED
from label_dp.domain import Domain
from label_dp.errors import Conflict
from labels_party import cli
from labels_party.labels.batches import SEALED, UNITS, UPSERT, Batch
from labels_party.labels.seal import SealedLabels, TooManyExamples
from labels_party.ledger.populations import Population
from tests.support.asking import population as declared
from tests.support.labels import LabelsParty

MISSING = 10
NAMES = itertools.count()
Rows = dict[str, tuple[str, int]]  # id → unit, label


def population(party: LabelsParty, most: int = 2, missing: str | None = str(MISSING)) -> Population:
    s, name = party.services, f"people-{next(NAMES)}"
    wanted = declared(
        name, name, Domain.parse("0:10"), "5", missing_label=missing, unit_column="person", max_examples_per_unit=most
    )
    return s.database.write("test.population", lambda c: s.populations.create(c, wanted, "test"))


def filled(party: LabelsParty, owner: Population, rows: Rows, *, listed: bool = False) -> Batch:
    s = party.services
    batch = s.database.write("test.batch", lambda c: s.batches.create(c, owner, "id-list" if listed else "public"))
    table = pa.table(
        {
            "example_id": list(rows),
            "unit": [unit for unit, _ in rows.values()],
            "label": pa.array([float(label) for _, label in rows.values()], pa.float64()),
        }
    )
    if listed:
        s.intake.put_examples(batch.id, table.select(["example_id", "unit"]))
        table = table.drop_columns(["unit"])
    s.intake.add_labels(batch.id, table, owner=True)
    return batch


def labels_of(party: LabelsParty, batch: Batch) -> dict[str, int]:
    s = party.services
    (segment,) = s.database.read("test.segments", lambda c: s.batches.segments(c, batch.id, SEALED))
    found: dict[str, int] = {}
    for ids, index in SealedLabels(s.vault, segment.key).chunks():
        found |= dict(zip(ids.to_pylist(), index.tolist(), strict=True))
    return found


def sealed(party: LabelsParty, owner: Population, rows: Rows, *, listed: bool = False) -> dict[str, int]:
    batch = filled(party, owner, rows, listed=listed)
    party.services.sealer.seal(batch.id, "test")
    return labels_of(party, batch)


def beyond(party: LabelsParty, owner: Population) -> list[int | None]:
    """How many examples of each batch are beyond the bound, in the order of their seals."""
    found = party.services.database.read("test.batches", lambda c: party.services.batches.of_population(c, owner.id))
    return [b.examples_beyond for b in sorted(found, key=lambda b: b.seal_order or 0)]


@pytest.mark.parametrize("listed", [False, True])
def test_the_first_ids_of_a_unit_keep_their_label(party_on: LabelsParty, listed: bool) -> None:
    owner = population(party_on)
    found = sealed(party_on, owner, {"d": ("ann", 4), "a": ("ann", 1), "c": ("ann", 3), "b": ("bob", 2)}, listed=listed)
    assert found == {"a": 1, "b": 2, "c": 3, "d": MISSING}


def test_earlier_batches_use_up_the_allowance_released_or_not(party_on: LabelsParty) -> None:
    owner = population(party_on)
    assert sealed(party_on, owner, {"a": ("ann", 1), "x": ("bob", 5)}) == {"a": 1, "x": 5}
    assert sealed(party_on, owner, {"b": ("ann", 2), "c": ("ann", 3)}) == {"b": 2, "c": MISSING}
    # an example in excess uses nothing up
    assert sealed(party_on, owner, {"d": ("ann", 4), "e": ("bob", 6), "f": ("eve", 7)}) == {
        "d": MISSING,
        "e": 6,
        "f": 7,
    }


def test_without_a_missing_label_the_owner_is_told_ids_and_no_labels(party_on: LabelsParty) -> None:
    owner = population(party_on, 1, None)
    batch = filled(party_on, owner, {f"i{n:02d}": ("ann" if n else "bob", n % 10) for n in range(25)})
    with pytest.raises(TooManyExamples) as refused:
        party_on.services.sealer.seal(batch.id, "test")
    assert refused.value.extras() == {"examples_in_excess": [f"i{n:02d}" for n in range(2, 22)]}
    assert "i02" in refused.value.detail
    assert not [p for p in (party_on.home / "labels" / batch.id).iterdir() if p.name.startswith(("sealed", "units"))]


def test_what_is_said_of_units_does_not_depend_on_labels(party: LabelsParty) -> None:
    """The same ids and units with every label there or missing: the same examples are named."""
    told, s = [], party.services
    for given_ids in (["a", "b", "c"], ["c"], ["a"]):
        owner = population(party, 1, None)
        batch = s.database.write("b", lambda c, owner=owner: s.batches.create(c, owner, "id-list"))
        s.intake.put_examples(batch.id, pa.table({"example_id": ["a", "b", "c"], "unit": ["u", "u", "u"]}))
        s.intake.add_labels(batch.id, pa.table({"example_id": given_ids, "label": [1.0] * len(given_ids)}), owner=True)
        with pytest.raises(TooManyExamples) as refused:
            s.sealer.seal(batch.id, "test")
        told.append((refused.value.detail, refused.value.extras()))
    assert told[0] == told[1] == told[2]


def test_how_many_are_beyond_the_bound_does_not_depend_on_labels(party: LabelsParty) -> None:
    """Ids, units and an erasure are the same; of the labels there are all, one, other ones, or each corrected."""
    told, s = [], party.services
    ids, units = [f"i{n}" for n in range(8)], ["u", "u", "u", "v", "v", "w", "w", "w"]
    for labels in ({}, {"i3": 4.0}, dict.fromkeys(ids, 1.0), dict.fromkeys(ids, 9.0)):
        owner = population(party, 1)
        s.unit_erasures.request(owner.id, ["w"], "test")
        batch = s.database.write("b", lambda c, owner=owner: s.batches.create(c, owner, "id-list"))
        s.intake.put_examples(batch.id, pa.table({"example_id": ids, "unit": units}))
        for mode in ("insert", UPSERT) if labels else ():
            sent = pa.table({"example_id": list(labels), "label": list(labels.values())})
            s.intake.add_labels(batch.id, sent, mode=mode, owner=True)
        s.sealer.seal(batch.id, "test")
        told += beyond(party, owner)
    assert told == [3] * 4  # two of u and one of v; what is erased of w counts as erased


def test_a_receiver_does_not_say_what_the_units_are(party: LabelsParty) -> None:
    """Else it could call every example of somebody a unit of its own, and the stated bound would be worth nothing."""
    owner, receiver = party.client("owner"), party.client("features")
    declared = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "5", "missing_label": 0}
    declared |= {"unit_column": "person", "max_examples_per_unit": 1}
    assert owner.post("/v1/populations", json=declared).status_code == 201
    batch = owner.post("/v1/populations/shop/batches", json={}).json()["id"]
    path, ids = f"/v1/batches/{batch}/examples", ["a", "b"]
    refused = receiver.put(path, json={"example_id": ids, "unit": ["ann-1", "ann-2"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict"), refused.text
    assert owner.put(path, json={"example_id": ids, "unit": ["ann", "ann"]}).status_code == 200
    again = receiver.put(path, json={"example_id": ids, "unit": ["ann", "ann"]})
    assert again.json()["detail"] == refused.json()["detail"]


def test_other_populations_have_their_own_allowance(party: LabelsParty) -> None:
    assert sealed(party, population(party, 1), {"a": ("ann", 1)}) == {"a": 1}
    assert sealed(party, population(party, 1), {"a": ("ann", 1)}) == {"a": 1}


def test_corrections_count_once_and_the_last_unit_counts(party: LabelsParty) -> None:
    owner = population(party, 1)
    s = party.services
    batch = filled(party, owner, {"a": ("ann", 1), "b": ("bob", 2), "c": ("eve", 3)})
    for ids, units, labels in ((["a", "c"], ["ann", "bob"], [7.0, 8.0]), (["a"], ["ann"], [9.0])):
        s.intake.add_labels(
            batch.id, pa.table({"example_id": ids, "unit": units, "label": labels}), mode=UPSERT, owner=True
        )
    s.sealer.seal(batch.id, "test")
    assert labels_of(party, batch) == {"a": 9, "b": 2, "c": MISSING}
    # eve kept nothing there, so she still has her allowance; ann and bob have not
    assert sealed(party, owner, {"x": ("ann", 1), "y": ("bob", 1), "z": ("eve", 1)}) == {
        "x": MISSING,
        "y": MISSING,
        "z": 1,
    }


UNIT = st.sampled_from(["u", "v", "w"])
BATCHES = st.lists(st.lists(UNIT, min_size=1, max_size=8), min_size=1, max_size=3)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
def test_the_bound_holds_whatever_the_batches(
    party: LabelsParty, batches: Any, most: int, listed: bool, rng: Any
) -> None:
    owner, used, without = population(party, most), Counter[str](), []
    for number, units in enumerate(batches):
        rows: list[tuple[str, tuple[str, int]]] = [(f"{number}-{i}", (u, i % 9)) for i, u in enumerate(units)]
        expected = {}
        for name, (unit, label) in sorted(rows):
            expected[name] = label if used[unit] < most else MISSING
            used[unit] += used[unit] < most
        rng.shuffle(rows)
        assert sealed(party, owner, dict(rows), listed=listed) == expected
        without.append(sum(label == MISSING for label in expected.values()))
    assert beyond(party, owner) == without


def test_seals_at_once_do_not_use_the_same_allowance(party_on: LabelsParty) -> None:
    owner = population(party_on, 2)
    batches = [filled(party_on, owner, {f"{b}-{i}": ("ann", i) for i in range(2)}) for b in range(5)]

    def seal(batch: Batch) -> None:
        party_on.services.sealer.seal(batch.id, "test")

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(seal, batches))
    kept = [label for b in batches for label in labels_of(party_on, b).values() if label != MISSING]
    assert sorted(kept) == [0, 1]


def test_a_seal_that_was_overtaken_counts_again(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = population(party, 1)
    slow, fast = filled(party, owner, {"s": ("ann", 1)}), filled(party, owner, {"f": ("ann", 2)})
    sealer = party.services.sealer
    of, overtaken = sealer.sort.of, []

    def overtake(*arguments: Any) -> Any:
        if not overtaken:
            overtaken.append(fast)
            sealer.seal(fast.id, "test")
        return of(*arguments)

    monkeypatch.setattr(sealer.sort, "of", overtake)
    sealer.seal(slow.id, "test")
    assert (labels_of(party, fast), labels_of(party, slow)) == ({"f": 2}, {"s": MISSING})
    stored = [p.name for p in (party.home / "labels" / slow.id).iterdir()]
    assert sum(name.startswith("units") for name in stored) == 1


def test_a_batch_sealed_without_a_tally_closes_the_population(party: LabelsParty) -> None:
    owner = population(party)
    first = filled(party, owner, {"a": ("ann", 1)})
    s = party.services
    s.sealer.seal(first.id, "test")
    s.database.write("test.drop", lambda c: s.batches.drop_segments(c, first.id, UNITS, [1]))
    with pytest.raises(Conflict, match="sealed before units were counted"):
        s.sealer.seal(filled(party, owner, {"b": ("ann", 1)}).id, "test")


def test_digests_of_units_show_no_unit_and_differ_between_populations(party: LabelsParty) -> None:
    seen = []
    for _ in range(2):
        owner = population(party)
        batch = filled(party, owner, {"a": ("ann", 1), "b": ("bob", 2), "c": ("ann", 3)})
        party.services.sealer.seal(batch.id, "test")
        (stored,) = (party.home / "labels" / batch.id).glob("units*")
        ((low, _, kept),) = party.services.vault.numbers(f"{batch.id}/{stored.name}", 3)
        assert sorted(kept.tolist()) == [1, 2]
        seen.append(set(low.tolist()))
    assert not seen[0] & seen[1]


def test_the_figure_per_unit_is_in_manifest_ledger_and_audit(party_on: LabelsParty) -> None:
    owner = population(party_on, 3)
    s = party_on.services
    batches = [filled(party_on, owner, {f"{b}{i}": (f"u{i}", i % 9) for i in range(40)}) for b in "xy"]
    for batch in batches:
        s.sealer.seal(batch.id, "test")
    first = party_on.release(batches[0].id, "1.5", prior="uniform")
    second = party_on.release(batches[1].id, "0.7", prior="uniform")
    manifests = [payload(next((party_on.home / "work" / r).glob("*/*.dsse.json"))) for r in (first, second)]
    for manifest in manifests:
        assert manifest["unit"] == {
            "kind": "unit",
            "column": "person",
            "max_examples": 3,
            "epsilon_per_unit": "4.5",  # 3 times the most that any batch has spent so far
            "examples_beyond": 0,
        }
    report = s.database.read("test.report", lambda c: s.ledger.report(c, owner))
    assert (report["epsilon_spent_at_most"], report["epsilon_per_unit_at_most"]) == ("1.5", "4.5")
    charged = s.database.read("test.events", lambda c: s.audit.events(c, kind=CHARGED))
    assert [e.details["epsilon_per_unit"] for e in charged] == ["4.5", "4.5"]


def payload(envelope: Path) -> Any:
    return json.loads(base64.b64decode(json.loads(envelope.read_bytes())["payload"]))


@pytest.mark.parametrize("listed", [False, True])
def test_privatize_with_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], listed: bool
) -> None:
    monkeypatch.setenv("LABELS_PARTY_HOME", str(tmp_path / "home"))
    table = pa.table(
        {"click": [f"c{i}" for i in range(60)], "who": [i // 3 for i in range(60)], "paid": np.arange(60) % 11}
    )
    pq.write_table(table.drop_columns(["who"]) if listed else table, tmp_path / "labels.parquet")
    pq.write_table(table.select(["click", "who"]), tmp_path / "examples.parquet")
    words = f"privatize --labels {tmp_path}/labels.parquet --id-column click --label-column paid --domain 0:10"
    words += f" --epsilon 1 --budget 1 --population p --out {tmp_path}/m.parquet --missing-label 0 --json"
    words += " --unit-column who --max-examples-per-unit 2" + (f" --examples {tmp_path}/examples.parquet" * listed)
    monkeypatch.setattr(sys, "argv", ["labels-party", *words.split()])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    shown = capfd.readouterr()
    assert not stop.value.code, shown.err
    said = "20 of 60 examples (33 %) are beyond the 2 that one who may have over the population's lifetime"
    assert f"warning: {said}: they count as 0." in shown.err
    assert json.loads(shown.out)["unit"]["examples_beyond"] == 20
    (tally,) = (tmp_path / "home" / "labels").glob("*/units*")
    assert np.fromfile(tally, "<u8").reshape(-1, 3)[:, 2].tolist() == [2] * 20
    assert payload(tmp_path / "m.parquet.dsse.json")["unit"] == {
        "kind": "unit",
        "column": "who",
        "max_examples": 2,
        "epsilon_per_unit": "2",
        "examples_beyond": 20,
    }
