"""Randomness: fresh keys, no forked streams, no fallback."""

from __future__ import annotations

import copy
import math
import os
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.errors import EpsilonNotProved, InvalidMechanism, RandomnessUnavailable
from label_dp.privacy import Epsilon
from labels_party.mechanisms import entropy
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.entropy import (
    Keystream,
    LaplaceNoise,
    discrete_laplace,
    float_not_above,
    float_not_below,
)

HALF = LaplaceNoise(1, Fraction(1, 2))


def test_keystreams_differ_and_go_on() -> None:
    first, second = Keystream(), Keystream()
    a, b, c = first.uint64(1000), first.uint64(1000), second.uint64(1000)
    assert np.unique(np.concatenate([a, b, c])).size == 3000
    assert first.uint64(0).size == 0
    assert first.uint64(5).dtype == np.uint64


def test_keystream_is_aes_256_ctr_under_the_key_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = bytes(range(32))
    monkeypatch.setattr(os, "urandom", lambda n: key[:n])
    stream = Keystream()
    got = np.concatenate([stream.uint64(3), stream.uint64(2), stream.uint64(11)]).tobytes()
    want = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(16 * 8))
    assert got == want


def test_keystream_shows_and_stores_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = b"k" * 32
    monkeypatch.setattr(os, "urandom", lambda n: key)
    stream = Keystream()
    held = [getattr(stream, name) for name in Keystream.__slots__]
    assert key not in held
    assert repr(stream) == "Keystream(AES-256-CTR)"
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            duplicate(stream)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_is_refused() -> None:
    stream = Keystream()
    child = os.fork()
    if child == 0:
        try:
            stream.uint64(1)
        except RandomnessUnavailable:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert stream.uint64(1).size == 1


# what Python raises of a system that fails, and of one without a source; and too few bytes
@pytest.mark.parametrize("failure", [OSError("no entropy"), NotImplementedError("no source"), b"short"])
def test_failing_system_randomness_is_refused_without_fallback(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | bytes
) -> None:
    domain = Domain.parse("0:20")
    epsilon = Epsilon.parse("1")
    channels = [
        (m, m.design(domain, np.full(21, 1 / 21), epsilon, "squared", {}))
        for m in (MECHANISMS["rr-on-bins"], MECHANISMS["one-bit"])
    ]

    def urandom(n: int) -> bytes:
        if isinstance(failure, bytes):
            return failure
        raise failure

    def weaker(*args: object, **kwargs: object) -> None:
        raise AssertionError("fell back on a weaker source")

    monkeypatch.setattr(os, "urandom", urandom)
    monkeypatch.setattr(np.random, "default_rng", weaker)
    monkeypatch.setattr(np.random, "randint", weaker)
    with pytest.raises(RandomnessUnavailable):
        Keystream()
    for mechanism, channel in channels:
        with pytest.raises(RandomnessUnavailable):
            mechanism.sample(channel, np.arange(21))


def test_failing_discrete_laplace_sampler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from opendp import measurements
    from opendp.mod import OpenDPException

    class Broken:
        map = staticmethod(lambda _moved: 0.0)

        def __call__(self, values: object) -> object:
            raise OpenDPException("FailedFunction", "no entropy")

    monkeypatch.setattr(measurements, "make_laplace", lambda *_, **__: Broken())
    with pytest.raises(RandomnessUnavailable):
        discrete_laplace(HALF, 3)


def test_discrete_laplace_refuses_senseless_scales() -> None:
    for sensitivity, epsilon in ((0, 1), (-1, 1), (1, 0), (1, -1), (1 << 60, 1), (1, Fraction(1, 10**400))):
        with pytest.raises(InvalidMechanism):
            LaplaceNoise(sensitivity, Fraction(epsilon))
    assert discrete_laplace(HALF, 0).size == 0


def epsilons(count: int) -> list[Fraction]:
    return [Fraction(nano, 10**9) for nano in np.random.default_rng(2).integers(1, 10**10, size=count).tolist()]


def test_the_librarys_own_map_proves_every_epsilon_and_hardly_less() -> None:
    """Half of all scales that are just above 2/ε are not enough for it: its ε is a float, rounded up."""
    refused = 0
    for epsilon in epsilons(1000):
        noise = LaplaceNoise(2, epsilon)
        assert Fraction(2) / epsilon <= noise.scale <= Fraction(2) / epsilon * (1 + Fraction(1, 1 << 51))
        assert Fraction(library_epsilon(float(noise.scale), 2)) <= epsilon
        refused += library_epsilon(float_not_below(2 / epsilon), 2) > epsilon
    assert refused > 300


def library_epsilon(scale: float, moved: int) -> float:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance

    discrete_laplace(HALF, 1)  # enables what the library calls contrib
    return float(make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale).map(moved))


@pytest.mark.parametrize("planted", ["a scale an ulp too small", "a scale of 1/ε", "a library that proves less", "NaN"])
def test_a_draw_whose_epsilon_is_not_proved_is_refused_before_it_is_made(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opendp import measurements

    make, drawn = measurements.make_laplace, []
    wrong: dict[str, Callable[[float], float]] = {
        "a scale an ulp too small": lambda scale: math.nextafter(scale, 0.0),
        "a scale of 1/ε": lambda scale: scale / 2,
    }

    class Watched:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def map(self, moved: int) -> float:
            if planted == "NaN":
                return math.nan
            return float(self.inner.map(moved)) * (1 + (planted == "a library that proves less") * 2**-40)

        def __call__(self, values: object) -> object:
            drawn.append(values)
            return self.inner(values)

    def made(*about: Any, scale: float) -> Watched:
        return Watched(make(*about, scale=wrong.get(planted, float)(scale)))

    monkeypatch.setattr(measurements, "make_laplace", made)
    with pytest.raises(EpsilonNotProved):
        discrete_laplace(HALF, 3)
    assert drawn == []


def test_a_scale_that_is_rounded_down_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "float_not_below", lambda value: math.nextafter(float_not_above(value), 0.0))
    for epsilon in epsilons(20):
        with pytest.raises(EpsilonNotProved):
            discrete_laplace(LaplaceNoise(2, epsilon), 1)


def test_scales_are_rounded_up_never_down() -> None:
    rng = np.random.default_rng(1)
    for nano in rng.integers(1, 10**10, size=3000).tolist():
        scale = Fraction(2 * 10**9, nano)
        rounded = float_not_below(scale)
        assert Fraction(rounded) >= scale
        assert Fraction(math.nextafter(rounded, 0.0)) < scale
