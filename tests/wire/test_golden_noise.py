"""Golden manifest forms of noise on a lattice, and the weights that follow from them bit for bit.

Both parties and the standalone verifier rebuild these weights from a few parameters; if a digest here changes, old
messages would be read with other chances than they were drawn with.
"""

from __future__ import annotations

import hashlib
import json
import random

import numpy as np
import pytest

from deploy.verify_standalone.channels import check_channel
from deploy.verify_standalone.domains import Domain as Labels
from deploy.verify_standalone.noise import exponential_rows, noise_weights
from deploy.verify_standalone.refusal import RefusedError
from label_dp.channels.exponential import ExponentialChannel
from label_dp.channels.laplace import LaplaceChannel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.registry import channel_from_json
from label_dp.channels.staircase import StaircaseChannel
from label_dp.documents.canonical import canonical_bytes
from label_dp.domain import Domain
from label_dp.errors import MalformedManifest
from label_dp.privacy import Epsilon

GOLDEN: dict[str, tuple[str, bytes, str]] = {
    # clipped to the domain (reach 0), 20 lattice steps between two labels
    "laplace": (
        "0:100",
        # N: weights are out of 2^64; peak: that of no noise; cells: lattice steps over the domain
        b'{"N":"18446744073709551616","cells":"2000","epsilon":"1.5","kind":"laplace","peak":"6917528703381926"'
        b',"reach":"0"}',
        "7496dd5653393e06aadd3505be24bcb04559f0672a575a4863795f78eec64e4d",
    ),
    # discrete, outputs up to 28 steps beyond the ends; width: that of the upper step
    "staircase": (
        "-3:4",
        b'{"N":"18446744073709551616","cells":"7","epsilon":"7.000000001","kind":"staircase","peak":"18214005519697283072"'
        b',"reach":"28","width":"1"}',
        "cc942545153a5d7725765d932c9121d282c35580e401aaa409a996eba7c6f168",
    ),
    # labels lie between the points of the lattice; decay: half of ε
    "exponential": (
        "0:1:0.04",
        b'{"N":"18446744073709551616","cells":"10","decay":"0.25","kind":"exponential"}',
        "425b67dc8b04e0e6b2824bdf42c267f50409d12ce567b9687b910e8ffb662dbd",
    ),
}


def digest(weights: np.ndarray) -> str:
    """Of the weights as big-endian 64-bit words, row by row."""
    return hashlib.sha256(np.ascontiguousarray(weights).astype(">u8").tobytes()).hexdigest()


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_weights_are_those_of_the_first_version(kind: str) -> None:
    domain, form, sha256 = GOLDEN[kind]
    channel = channel_from_json(json.loads(form), Domain.parse(domain))
    assert isinstance(channel, NoiseChannel | ExponentialChannel)
    assert channel.kind == kind
    assert canonical_bytes(channel.as_json()) == form
    assert digest(channel.weights) == sha256


@pytest.mark.parametrize("seed", range(12))
def test_an_independent_reader_rebuilds_the_same_weights(seed: int) -> None:
    rng, domain = random.Random(seed), Domain.parse("0:12")
    cells, reach, peak = rng.randrange(1, 300), rng.choice([0, rng.randrange(1, 900)]), 2 * rng.randrange(1, 10**14)
    epsilon = Epsilon(rng.choice([rng.randrange(1, 40 * 10**9), rng.randrange(1, 10**9), 40 * 10**9]))
    for channel in (
        LaplaceChannel(domain=domain, noise_epsilon=epsilon, cells=cells, reach=reach, peak=peak),
        StaircaseChannel(
            domain=domain, noise_epsilon=epsilon, cells=cells, reach=reach, peak=peak, width=rng.randint(1, cells)
        ),
    ):
        assert noise_weights(channel.as_json())[0] == channel.weights.tolist()
    decay = Epsilon(rng.randrange(1, 24 * 10**9))
    exponential = ExponentialChannel(domain=domain, cells=cells, decay=decay)
    assert list(exponential_rows(exponential.as_json())) == exponential.weights.tolist()


GIANTS: list[tuple[str, dict[str, str]]] = [
    ("laplace", {"cells": "1" + "0" * 300}),
    ("laplace", {"cells": "131072"}),
    ("laplace", {"reach": "65536"}),
    ("laplace", {"reach": "9" * 400}),
    ("laplace", {"peak": str(1 << 64)}),
    ("laplace", {"peak": "6917528703381927"}),
    ("laplace", {"peak": "0"}),
    ("laplace", {"peak": str(1 << 63)}),
    ("laplace", {"cells": "0"}),
    ("laplace", {"epsilon": "0"}),
    ("laplace", {"epsilon": "40.000000001"}),
    ("laplace", {"epsilon": "1.50"}),
    ("laplace", {"epsilon": "-1.5"}),
    ("laplace", {"epsilon": "1e3"}),
    ("staircase", {"width": "0"}),
    ("staircase", {"width": "8"}),
    ("exponential", {"cells": "2049"}),
    ("exponential", {"cells": "0"}),
    ("exponential", {"decay": "24.000000001"}),
    ("exponential", {"decay": "0"}),
]


@pytest.mark.parametrize(("kind", "change"), GIANTS)
def test_giant_tables_and_wrong_parameters_are_refused_before_they_cost(kind: str, change: dict[str, str]) -> None:
    domain, form, _ = GOLDEN[kind]
    data = json.loads(form) | change
    with pytest.raises(MalformedManifest):
        channel_from_json(data, Domain.parse(domain))
    with pytest.raises(RefusedError):
        check_channel(data, Labels(Domain.parse(domain).as_json()), 40 * 10**9)
