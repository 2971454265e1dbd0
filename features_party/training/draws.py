"""Splits that no data can follow: rows are dealt by draws, keyed hashes of their examples' ids.

A generator with a fixed seed gives every program the same numbers, the one that made the data too: rows held out by
`default_rng(1)` were those whose feature, made by `default_rng(1)`, had one value. The key of the hash comes from the
releases of the messages (`tables.join.split_key`). So the same messages and ids are split alike in every training, and
whoever made ids and features could not know the key.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Draws = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)


def mixed(draws: Draws, purpose: str) -> Draws:
    """uint64[n]: draws for this purpose, which tell nothing of those for another (SplitMix64; Steele, Lea & Flood
    2014)."""
    found = draws ^ np.uint64(_word(purpose.encode()))
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def dealt(draws: Draws, count: int, purpose: str) -> npt.NDArray[np.int8]:
    """int8[n] below `count`: folds of about one size; equal draws share one."""
    return np.asarray(np.unique(mixed(draws, purpose), return_inverse=True)[1] % count, np.int8)


def shuffled(draws: Draws, purpose: str) -> npt.NDArray[np.int64]:
    """int64[n]: the rows in the order of their draws."""
    return np.argsort(mixed(draws, purpose), kind="stable")


def seed(draws: Draws, purpose: str) -> int:
    """For a library that takes no draws, 31 bits."""
    return int(mixed(np.bitwise_xor.reduce(draws, keepdims=True), purpose)[0] >> np.uint64(33))


def by_position(groups: npt.NDArray[np.integer], labels: npt.NDArray[np.float64]) -> Draws:
    """uint64[n] for rows without ids, by their group and a key that comes from the digest of all labels."""
    return mixed(groups.astype(np.uint64) * STEP + np.uint64(_word(labels.tobytes())), "position")


def _word(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
