"""The key of the digests of ids at rest, derived from the party's secret; those of objects are in `batch_keys.py`."""

from __future__ import annotations

from labels_party.labels.batches import label_scope
from labels_party.storage.secrets import Secrets


def digest_key(secrets_: Secrets, label: str) -> bytes:
    """Digests of ids are comparable within one label name, whatever the population is called (invariant no-oracle)."""
    return secrets_.derive("ids:" + label_scope(label))
