"""A backup of the features party: what it accepted, its audit store and its receipts come back together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from features_party.backups import features_party
from features_party.bootstrap import bootstrap
from features_party.settings import Settings
from label_dp.backup.restoring import RestoreRequest, restore
from label_dp.backup.taking import back_up
from label_dp.errors import Conflict
from tests.support.receipts import Pair, pair

pytestmark = pytest.mark.extended


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as started:
        started.receiver.services.pinned.pin(started.labels.home / "keys" / "signing.pub")
        yield started


def brought_back(both: Pair, home: Path, *against: Path, **settings: Any) -> dict[str, Any]:
    party = features_party(settings=Settings(home=home, **settings))
    keys = both.receiver.services.home.keys
    return restore(party, RestoreRequest(both.folder / "b.zip", keys, against=against))


def test_it_goes_on_with_what_it_accepted(both: Pair, postgres_url: str) -> None:
    both.pull(first := both.release())
    both.pull_answer()
    found = back_up(features_party(settings=both.receiver.settings), both.folder / "b.zip")
    assert (found["absent"], found["keys"]) == (0, ["signing.key"])
    own = both.receiver.export(both.folder / "own.json")
    told = brought_back(both, both.folder / "again", own, both.labels_export(), database_url=postgres_url)
    assert all(comparison["agrees"] for comparison in told["against"]), told["against"]
    services = bootstrap(Settings(home=both.folder / "again", database_url=postgres_url))  # type: ignore[arg-type]  # pydantic converts
    try:
        assert services.messages.open(first).manifest.id == first
        assert services.pinned.list()
    finally:
        services.close()


def test_one_that_forgets_what_was_accepted_is_refused(both: Pair) -> None:
    """Its receipts would begin a second history."""
    both.pull()
    back_up(features_party(settings=both.receiver.settings), both.folder / "b.zip")
    both.pull()
    for export in (both.labels_export(), both.features_export()):
        with pytest.raises(Conflict, match="older than what happened"):
            brought_back(both, both.folder / "again", export)
        assert not (both.folder / "again").exists()
