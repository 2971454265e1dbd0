"""Comparison of two stored lists of examples, in whatever order."""

from __future__ import annotations

from labels_party.labels.digests import siphash128
from labels_party.labels.runs import Run, same_run
from labels_party.labels.vault import LabelVault

WORD = 1 << 64


def same_examples(vault: LabelVault, one: tuple[str, Run], other: tuple[str, Run], key: bytes, *, units: bool) -> bool:
    """Whether two lists, each its object in the vault and its run, have the same ids and the same unit for each."""
    if not same_run(one[1], other[1]):
        return False
    return not units or _fingerprint(vault, one[0], key) == _fingerprint(vault, other[0], key)


def _fingerprint(vault: LabelVault, stored: str, key: bytes) -> tuple[int, int]:
    """Sums of the keyed digests of (id, unit), which do not depend on the order of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sums = [0, 0]
    for batch in vault.scan(stored):
        ids, units = (batch.column(i).cast(pa.large_string()) for i in (0, 1))
        lengths = pc.binary_length(ids).cast(pa.large_string())  # so that no other pair reads the same
        pairs = pc.binary_join_element_wise(lengths, ids, units, pa.scalar(" ", pa.large_string()))
        for i, half in enumerate(siphash128(pairs, key)):
            sums[i] = (sums[i] + int(half.sum())) % WORD  # numpy adds modulo 2⁶⁴
    return sums[0], sums[1]
