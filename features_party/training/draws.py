"""Splits that are independent of the data: rows are split by draws, keyed hashes of their examples' ids.

A generator with a fixed seed gives every program the same numbers, including the one that made the data: rows held out
by `default_rng(1)` were those whose feature, made by `default_rng(1)`, had one value. The key of the hash comes from
the releases of the messages (`tables.join.split_key`). So the same messages and ids are split alike in every training,
and whoever made ids and features could not know the key.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Draws = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)


def mixed(draws: Draws, purpose: str) -> Draws:
    """Derive draws uint64[n] for this purpose, independent of those for another (SplitMix64; Steele, Lea & Flood
    2014)."""
    bits = draws ^ np.uint64(_word(purpose.encode()))
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def dealt(draws: Draws, count: int, purpose: str) -> npt.NDArray[np.int8]:
    """Assign rows to `count` folds of about equal size: int8[n]. Equal draws share a fold."""
    return np.asarray(np.unique(mixed(draws, purpose), return_inverse=True)[1] % count, np.int8)


def shuffled(draws: Draws, purpose: str) -> npt.NDArray[np.int64]:
    """Order the rows by their draws: int64[n]."""
    return np.argsort(mixed(draws, purpose), kind="stable")


def seed(draws: Draws, purpose: str) -> int:
    """Derive a seed of 31 bits, for a library that takes no draws."""
    return int(mixed(np.bitwise_xor.reduce(draws, keepdims=True), purpose)[0] >> np.uint64(33))


def by_position(groups: npt.NDArray[np.integer], labels: npt.NDArray[np.float64]) -> Draws:
    """Make draws uint64[n] for rows without ids, from their group and a key derived from the digest of all labels."""
    return mixed(groups.astype(np.uint64) * STEP + np.uint64(_word(labels.tobytes())), "position")


def _word(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
