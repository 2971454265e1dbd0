"""The only module of mechanisms that reads the operating system's randomness.

`Keystream` is AES-256 in counter mode under a fresh key of the operating system (NIST SP 800-38A): the ε of a channel
is exact for ideal bits, with a keystream it is computational. `discrete_laplace` is OpenDP's exact sampler, whose bits
come from OpenSSL's generator, seeded by the system and again after a fork; before each draw OpenDP's privacy map is
checked for its scale. Nothing here falls back on a weaker source: a failure is RandomnessUnavailable, and nothing was
drawn.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from label_dp.errors import EpsilonNotProved, InvalidMechanism, RandomnessUnavailable

KEY_BYTES = 32
MAX_NOISE_SCALE = 2.0**53


class Uint64Source(Protocol):
    """Source of a sampler's words."""

    def uint64(self, n: int) -> npt.NDArray[np.uint64]: ...


def _system_bytes(n: int) -> bytes:
    """Read n bytes of the operating system's randomness. Raises RandomnessUnavailable."""
    try:
        random_bytes = os.urandom(n)
    except (OSError, NotImplementedError):  # the latter is Python's error on a system without a source
        raise RandomnessUnavailable("The operating system gave no randomness, so nothing was drawn.") from None
    if len(random_bytes) != n:
        raise RandomnessUnavailable("The operating system gave too little randomness, so nothing was drawn.")
    return random_bytes


class Keystream:
    """Stream of independent uniform 64-bit words. One per draw operation; not for several threads.

    The key is never stored, printed or pickled. A child process that inherited a keystream by fork is refused: both
    would draw the same words. Raises RandomnessUnavailable.
    """

    __slots__ = ("_encryptor", "_pid", "_zeros")

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        key = _system_bytes(KEY_BYTES)
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._pid = os.getpid()
        self._zeros = b""

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        """Draw uint64[n], fresh words."""
        if os.getpid() != self._pid:
            raise RandomnessUnavailable("This keystream belongs to the parent process; make a new one after a fork.")
        if len(self._zeros) < 8 * n:
            self._zeros = bytes(8 * n)
        buffer = np.empty(n + 2, dtype=np.uint64)  # the cipher needs room for one block more
        self._encryptor.update_into(memoryview(self._zeros)[: 8 * n], buffer.data.cast("B"))
        return buffer[:n]

    def __repr__(self) -> str:
        return "Keystream(AES-256-CTR)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A keystream cannot be pickled or copied.")


def float_not_below(value: Fraction) -> float:
    """Return the smallest 64-bit float that is not below `value` > 0. Raises InvalidMechanism if there is none."""
    try:
        rounded = float(value)
    except OverflowError:
        raise InvalidMechanism("The noise scale is too large.") from None
    return math.nextafter(rounded, math.inf) if Fraction(rounded) < value else rounded


def float_not_above(value: Fraction) -> float:
    """Return the largest 64-bit float that is not above `value` > 0."""
    try:
        rounded = float(value)
    except OverflowError:
        return math.nextafter(math.inf, 0.0)
    return math.nextafter(rounded, 0.0) if Fraction(rounded) > value else rounded


@dataclass(frozen=True)
class LaplaceNoise:
    """Discrete Laplace noise for whole numbers that a neighbour moves by at most `sensitivity` in all (L1): ε-DP.

    Raises InvalidMechanism: a sensitivity below 1, an ε that is not above 0, or a scale above 2⁵³.
    """

    sensitivity: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        if self.sensitivity < 1 or self.epsilon <= 0:
            raise InvalidMechanism("Noise needs a sensitivity of at least 1 and an ε greater than zero.")
        if self.scale > MAX_NOISE_SCALE:
            raise InvalidMechanism("The noise scale is too large; ask with a larger ε.")

    @cached_property
    def scale(self) -> Fraction:
        """Scale s of P[t] ∝ e^(−|t|/s): a float, at least sensitivity/ε, and so large that the ε of OpenDP's map, which
        is a float rounded up, is not above ε either."""
        below = float_not_above(self.epsilon)
        if not below:
            raise InvalidMechanism("The noise scale is too large; ask with a larger ε.")
        return Fraction(float_not_below(self.sensitivity / Fraction(below)))


@lru_cache(maxsize=1)
def _enable_opendp() -> None:
    from opendp.mod import enable_features

    enable_features("contrib")


def discrete_laplace(noise: LaplaceNoise, n: int) -> npt.NDArray[np.int64]:
    """Draw int64[n] independently with P[t] ∝ e^(−|t|/s), exact, s the `noise.scale`.

    OpenDP's sampler (Canonne, Kamath & Steinke 2020, Algorithm 2), saturating at the ends of int64. About 10 µs a draw.
    Raises RandomnessUnavailable, and EpsilonNotProved before anything is drawn if OpenDP's own privacy map does not
    prove `noise.epsilon` for `noise.sensitivity`.
    """
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import OpenDPException

    _system_bytes(KEY_BYTES)  # without it OpenDP draws on from its present state, or ends the process
    _enable_opendp()
    scale, space = float(noise.scale), (vector_domain(atom_domain(T="i64")), l1_distance(T="i64"))
    measurement: Any = make_laplace(*space, scale=scale)
    if not measurement.map(noise.sensitivity) <= noise.epsilon:  # NaN is refused as well
        raise EpsilonNotProved("The noise library does not prove the ε that is charged, so nothing was drawn.")
    try:
        values = measurement([0] * n)
    except OpenDPException:
        raise RandomnessUnavailable("The discrete Laplace sampler got no randomness, so nothing was drawn.") from None
    return np.array(values, dtype=np.int64)
