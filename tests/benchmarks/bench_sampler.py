"""Randomized response with exact weights and a cipher keystream, against the usual inexact numpy two-liner."""

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
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


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
    index = np.random.default_rng(0).integers(401, size=n)
    sample(channel, index[:1000])
    took = statistics.median(seconds(lambda: sample(channel, index)) for _ in range(5))
    return (
        f"{' '.join([name, *options])}: labels → outputs",
        n / took / 1e6,
        f"million labels per second, k = 401, n = {n}",
    )


def rows() -> list[Row]:
    """(name, figure, unit or note) of every figure; about two seconds."""
    return [
        ratio_row(4, np.uint8),
        ratio_row(64, np.uint8),
        ratio_row(1000, np.uint16),
        pipeline_row("rr-on-bins", DRAWS),
        pipeline_row("one-bit", DRAWS),
        pipeline_row("discrete-laplace", DRAWS),
        pipeline_row("laplace", DRAWS),
        pipeline_row("laplace", DRAWS, unclipped=True),
        pipeline_row("staircase", DRAWS),
        pipeline_row("exponential", DRAWS),
    ]


if __name__ == "__main__":
    for name, figure, unit in rows():
        print(f"{name:40s} {figure:10.2f} {unit}")
