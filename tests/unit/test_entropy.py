"""Randomness: fresh keys, no forked streams, no fallback."""

from __future__ import annotations

import copy
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest

from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.mechanisms.entropy import Keystream, discrete_laplace, float_not_below
from shared.domain import Domain
from shared.errors import InvalidMechanism, RandomnessUnavailable
from shared.privacy import Epsilon


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

    def broken(*args: object, **kwargs: object) -> object:
        def measure(values: object) -> object:
            raise OpenDPException("FailedFunction", "no entropy")

        return measure

    monkeypatch.setattr(measurements, "make_laplace", broken)
    with pytest.raises(RandomnessUnavailable):
        discrete_laplace(Fraction(2), 3)


def test_discrete_laplace_refuses_senseless_scales() -> None:
    for scale in (Fraction(0), Fraction(-1), Fraction(1 << 60), Fraction(10) ** 400):
        with pytest.raises(InvalidMechanism):
            discrete_laplace(scale, 1)
    assert discrete_laplace(Fraction(5), 0).size == 0


def test_scales_are_rounded_up_never_down() -> None:
    rng = np.random.default_rng(1)
    for nano in rng.integers(1, 10**10, size=3000).tolist():
        scale = Fraction(2 * 10**9, nano)
        rounded = float_not_below(scale)
        assert Fraction(rounded) >= scale
        assert Fraction(math.nextafter(rounded, 0.0)) < scale
