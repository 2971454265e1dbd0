"""The keys that hide ids and labels at rest, derived from the party's secret."""

from __future__ import annotations

import re

from labels_party.labels.batches import label_scope
from labels_party.storage.secrets import Secrets

PART = re.compile(r"\.\d{5}(?=\.parquet$)")


def digest_key(secrets_: Secrets, label: str) -> bytes:
    """Digests of ids are comparable within one label name, whatever the population is called (invariant 8)."""
    return secrets_.derive("ids:" + label_scope(label))


def mask_key(secrets_: Secrets, stored: str) -> bytes:
    """A keystream for each stored object: the same id twice never shows how two labels differ. The parts of one sealed
    batch have one keystream together: no id is in two of them."""
    return secrets_.derive("mask:" + PART.sub("", stored))


def part_of(stored: str, number: int) -> str:
    """The vault's key of a part of the sealed object `stored`; parts follow each other in the order of ids."""
    return stored.removesuffix(".parquet") + f".{number:05d}.parquet"
