"""Key of id digests at rest, derived from the party's secret; keys of objects are in `batch_keys.py`."""

from __future__ import annotations

from labels_party.labels.batches import label_scope
from labels_party.storage.secrets import Secrets


def digest_key(secrets_: Secrets, label: str) -> bytes:
    """Derive the key of id digests: comparable within one label name, across populations (invariant no-oracle)."""
    return secrets_.derive("ids:" + label_scope(label))
