"""Keys of digests at rest, derived from the party's secret; keys of objects are in `batch_keys.py`."""

from __future__ import annotations

from labels_party.labels.digests import EventKeys
from labels_party.ledger.populations import label_scope
from labels_party.storage.secrets import Secrets


def digest_key(secrets_: Secrets, label: str) -> bytes:
    """Derive the key of id digests: comparable within one label name, across populations (invariant no-oracle)."""
    return secrets_.derive("ids:" + label_scope(label))


def event_keys(secrets_: Secrets, data_set: str) -> EventKeys:
    """Derive the keys of the digests of a data set's events."""
    return EventKeys(*(secrets_.derive(f"events:{what}:{data_set}") for what in ("event", "example", "type")))
