"""A backup from before the signing key was handed over: what shows the hand-over shows that charges would be lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from label_dp.audit.hand_overs import hand_over_of
from label_dp.audit.verification import compare_with
from label_dp.backup.restoring import RestoreRequest, restore
from label_dp.errors import Conflict, InvalidInput
from labels_party.backups import labels_party
from labels_party.settings import Settings
from tests.support.backups import keys_of, taken
from tests.support.labels import label_table
from tests.support.receipts import Pair, pair


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    """After a release of ε 1, a backup, a hand-over and a release of ε 9 of the same batch, whose lifetime ε is 10."""
    with pair(tmp_path) as started:
        batch = started.labels.sealed_batch(label_table(20))
        started.pull(started.labels.release(batch, "1"))
        taken(started.labels, tmp_path / "b.zip")
        keys_of(started.labels, tmp_path / "then")
        started.labels.services.own_keys.rotate("test")
        started.pull(started.labels.release(batch, "9", additional_release=True))
        assert started.labels.spent(batch) == "10"
        yield started


@pytest.mark.parametrize("charge_lost", [False, True])
@pytest.mark.parametrize("whose", ["labels", "features"])
def test_it_is_refused_against_either_export(both: Pair, tmp_path: Path, whose: str, charge_lost: bool) -> None:
    export = both.labels_export() if whose == "labels" else both.features_export()
    key = both.labels.services.home.public_key if whose == "labels" else None
    request = RestoreRequest(tmp_path / "b.zip", tmp_path / "then", None, (export,), charge_lost, key)
    with pytest.raises(Conflict, match="handed over after this backup"):
        restore(labels_party(settings=Settings(home=tmp_path / "again")), request)
    assert not (tmp_path / "again").exists()


def test_a_store_put_back_by_hand_is_found_by_both(both: Pair) -> None:
    events = both.labels_events()
    until = next(e.sequence for e in events if e.kind == "key-handed-over") - 1
    services = both.labels.services
    newer, theirs = both.labels_export(), both.features_export()
    first = next(e for e in events if e.kind == "key-handed-over")
    key = hand_over_of(first).old
    found = compare_with(theirs, events[:until], key, "labels", services.receipts.signer)
    assert [one["kind"] for one in found["findings"]] == ["rollback", "missing-work"]
    found = compare_with(newer, events[:until], key, "labels", lambda _: services.key.public)
    assert [one["kind"] for one in found["findings"]] == ["rollback"]


def test_an_export_of_another_labels_party_is_none_of_a_receiver(both: Pair, tmp_path: Path) -> None:
    with pair(tmp_path / "others") as others:
        others.pull()
        export, key = others.labels_export(), others.labels.services.key.public
        own = both.labels.services.key.public
        with pytest.raises(InvalidInput, match="another labels party"):
            compare_with(export, both.labels_events(), own, "labels", lambda _: key)
