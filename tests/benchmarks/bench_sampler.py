"""Exact draws from a cipher keystream, against numpy's own: inexact randomized response, uniform integers.

All of it runs on one core, and is timed by that core's seconds, so that what else the machine does hardly counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from label_dp.channels.base import N
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS, sample
from labels_party.mechanisms.entropy import Keystream
from labels_party.mechanisms.randomized_response import rr_weights, sample_rr
from tests.benchmarks.lines import Line

DRAWS = 1_000_000
ROUNDS = 15


def seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def ratio_line(d: int, dtype: type) -> Line:
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
    beside = f"numpy random + where + integers ({1e3 * theirs:.2f} ms)"
    return Line(f"randomized response, d = {d}, 10⁶ draws", 1e3 * ours, "ms", beside, ours / theirs)


def pipeline_line(name: str, n: int, **options: bool) -> Line:
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
    beside, title = f"numpy integers(401) ({n / theirs / 1e6:.0f} M/s)", " ".join([name, *options])
    wanted, outputs = 50 if "discrete" in name else None, f"{channel.m} outputs"
    return Line(title, n / ours / 1e6, "M labels/s", beside, theirs / ours, wanted, more=True, note=outputs)


def keystream_line(n: int) -> Line:
    """What no sampler of one word a label exceeds."""
    rng, stream = np.random.default_rng(0), Keystream()
    pairs = [
        (seconds(lambda: rng.integers(1 << 64, size=n, dtype=np.uint64)), seconds(lambda: stream.uint64(n)))
        for _ in range(ROUNDS)
    ]
    theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    beside = f"numpy integers(1 << 64) ({n / theirs / 1e6:.0f} M/s)"
    return Line("AES-256-CTR keystream", n / ours / 1e6, "M words/s", beside, theirs / ours, more=True)


def lines() -> list[Line]:
    """Of one core; about three seconds."""
    return [
        keystream_line(DRAWS),
        ratio_line(4, np.uint8),
        ratio_line(64, np.uint8),
        ratio_line(1000, np.uint16),
        pipeline_line("rr-on-bins", DRAWS),
        pipeline_line("one-bit", DRAWS),
        pipeline_line("discrete-laplace", DRAWS),
        pipeline_line("discrete-laplace", DRAWS, unclipped=True),
        pipeline_line("discrete-staircase", DRAWS),
        pipeline_line("laplace", DRAWS),
        pipeline_line("laplace", DRAWS, unclipped=True),
        pipeline_line("staircase", DRAWS),
        pipeline_line("exponential", DRAWS),
        pipeline_line("unbiased", DRAWS),
    ]
