"""Exact draws from a cipher keystream, against numpy's own: inexact randomized response, uniform integers.

All of it runs on one core, and is timed by that core's seconds, so that what else the machine does hardly counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from labels_party.mechanisms.catalogue import MECHANISMS, sample
from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.randomized_response import rr_weights, sample_rr
from shared.channels.base import N
from shared.domain import Domain
from shared.privacy import Epsilon

DRAWS = 1_000_000
ROUNDS = 15
Row = tuple[str, float, str]


def seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def ratio_row(d: int, dtype: type) -> Row:
    A, B = rr_weights(Epsilon.parse("1"), d)
    p = A / N
    rng = np.random.default_rng(0)
    bins = rng.integers(d, size=DRAWS).astype(dtype)

    def baseline() -> object:
        u = rng.random(DRAWS)
        return np.where(u < p, bins, rng.integers(d, size=DRAWS))

    def exact() -> object:
        return sample_rr(bins, d, A, B, Keystream())

    exact(), baseline()
    pairs = [(seconds(baseline), seconds(exact)) for _ in range(ROUNDS)]
    theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    note = (
        f"× the speed of numpy random + where + integers ({1e3 * theirs:.2f} ms) at {1e3 * ours:.2f} ms for 10⁶ draws"
    )
    return f"rr sampler, d = {d}", theirs / ours, note


def pipeline_row(name: str, n: int, **options: bool) -> Row:
    domain = Domain.parse("0:400")
    prior = np.exp(-np.arange(401) / 60.0)
    channel = MECHANISMS[name].design(domain, prior / prior.sum(), Epsilon.parse("1"), "squared", options)
    rng = np.random.default_rng(0)
    index = rng.integers(401, size=n)
    sample(channel, index)
    pairs = [
        (seconds(lambda: rng.integers(401, size=n)), seconds(lambda: sample(channel, index))) for _ in range(ROUNDS)
    ]
    theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    return (
        f"{' '.join([name, *options])}: labels",
        n / ours / 1e6,
        f"million labels per second of one core, {theirs / ours:.2f} × numpy integers(401) ({n / theirs / 1e6:.0f} "
        f"million); {channel.m} outputs",
    )


def keystream_row(n: int) -> Row:
    """What no sampler of one word a label exceeds."""
    rng, stream = np.random.default_rng(0), Keystream()
    pairs = [
        (seconds(lambda: rng.integers(1 << 64, size=n, dtype=np.uint64)), seconds(lambda: stream.uint64(n)))
        for _ in range(ROUNDS)
    ]
    theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    note = f"million words of 64 bits per second of one core, {theirs / ours:.2f} × numpy integers(1 << 64)"
    return "AES-256-CTR keystream", n / ours / 1e6, note


def rows() -> list[Row]:
    """(name, figure, unit or note) of every figure; about three seconds."""
    return [
        keystream_row(DRAWS),
        ratio_row(4, np.uint8),
        ratio_row(64, np.uint8),
        ratio_row(1000, np.uint16),
        pipeline_row("rr-on-bins", DRAWS),
        pipeline_row("one-bit", DRAWS),
        pipeline_row("discrete-laplace", DRAWS),
        pipeline_row("discrete-laplace", DRAWS, unclipped=True),
        pipeline_row("discrete-staircase", DRAWS),
        pipeline_row("laplace", DRAWS),
        pipeline_row("laplace", DRAWS, unclipped=True),
        pipeline_row("staircase", DRAWS),
        pipeline_row("exponential", DRAWS),
        pipeline_row("unbiased", DRAWS),
    ]


if __name__ == "__main__":
    for name, figure, unit in rows():
        print(f"{name:40s} {figure:10.2f} {unit}")
