"""Ten bugs that randomizers are known for, each planted into the code that releases run, each caught by a named check.

A check passes on the code as it is and must fail once the bug is in; the checks are what other tests of this project
run, here on small cases. Those that are statistical fail by chance with probability ALPHA = 10⁻⁶ at most.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from label_dp.channels.base import N
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import alias, catalogue, randomized_response, sampling
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.entropy import Keystream, LaplaceNoise, discrete_laplace
from tests.statistical.test_sampler_frequencies import ALPHA, p_value
from tests.support.exact_matrix import check_matrix, design, wrong_words
from tests.support.streams import repeated, words_drawn

EPSILON = Epsilon.parse("1")
NAMES = ["rr", "rr-on-bins", "rr-with-prior", "subset-selection", "one-bit"]
NAMES += ["discrete-laplace", "discrete-staircase", "exponential"]
Patch = pytest.MonkeyPatch


def fresh(name: str, domain: str = "0:12", epsilon: Epsilon = EPSILON) -> Any:
    return design(name, Domain.parse(domain), epsilon, {})


# --- the checks ----------------------------------------------------------------------------------------------


def exact_matrix() -> None:
    """As test_exact_matrix.test_every_mechanism_keeps_its_epsilon."""
    for name in NAMES:
        check_matrix(fresh(name), EPSILON)


def words_of_samplers() -> None:
    """As test_exact_matrix.test_every_word_of_a_sampler_gives_the_output_that_its_weights_say."""
    for name in NAMES:
        channel = fresh(name)
        assert [wrong_words(channel, position) for position in range(channel.k)] == [0] * channel.k


def frequencies() -> None:
    """As test_sampler_frequencies.test_randomized_response: χ² at ALPHA."""
    channel = fresh("rr", "0:100")
    counts = np.bincount(sampling.sample(channel, np.full(200_000, 50)), minlength=channel.m)
    assert p_value(counts, channel.rows(50, 51)[0]) > ALPHA


def prior_pays() -> None:
    """As test_averaging.test_no_attempt_gets_more_than_its_charge_and_refusals_ignore_labels: a label
    that moves from one cell to another changes the odds of all noisy counts by e^ε at most."""
    scales = []

    def watched(noise: LaplaceNoise, n: int) -> Any:
        scales.append(noise.scale)
        return discrete_laplace(noise, n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_module, "discrete_laplace", watched)
        prior_module.estimate_prior(np.array([3, 4]), EPSILON, np.array([0, 1, 2]))
    assert [2 / scale <= EPSILON.fraction for scale in scales] == [True]


def streams_differ() -> None:
    """As test_randomness.test_draws_of_threads_forks_and_fresh_processes_share_no_word: words repeat with probability
    below 10⁻¹⁰."""
    assert repeated([words_drawn(500), words_drawn(500)]) == 0
    assert np.any(Keystream().uint64(50) != Keystream().uint64(50))


def noise_is_new_each_time() -> None:
    """As test_randomness.test_noise_of_priors_never_comes_twice: at scale 10⁶ four equal numbers have
    probability 10⁻²⁴."""
    tiny, cells = Epsilon(2000), np.arange(5)
    priors = [prior_module.estimate_prior(np.full(4, 10**8), tiny, cells).tolist() for _ in range(3)]
    assert len({tuple(p) for p in priors}) == 3


# --- the bugs ------------------------------------------------------------------------------------------------


def _sample_rr(u_to_output: Callable[[Any, Any, int, int, int], Any]) -> Callable[..., Any]:
    def sample_rr(bins: Any, d: int, A: int, B: int, stream: Any) -> Any:
        u = stream.uint64(bins.size)
        return np.asarray(u_to_output(u, bins.astype(np.uint64), d, A, B)).astype(bins.dtype)

    return sample_rr


def _others(u: Any, A: int, B: int) -> Any:
    return (np.maximum(u, np.uint64(A)) - np.uint64(A)) // np.uint64(B)


def unrandomised_row(patch: Patch) -> None:
    draw = randomized_response.sample_rr
    patch.setattr(sampling, "sample_rr", lambda bins, *of: np.where(bins == 0, bins, draw(bins, *of)))


def wrong_d(patch: Patch) -> None:
    def one_too_many(epsilon: Epsilon, d: int) -> tuple[int, int]:
        B = int(-(-N // (epsilon.exp_lower() + d)))
        return N - (d - 1) * B, B

    patch.setattr(catalogue, "rr_weights", one_too_many)


def duplicate_output(patch: Patch) -> None:
    def own_among_the_others(u: Any, own: Any, d: int, A: int, B: int) -> Any:
        other = _others(u, A, B)
        return np.where(u < np.uint64(A), own, other + (other > own))  # ≥ leaves the own one out

    patch.setattr(sampling, "sample_rr", _sample_rr(own_among_the_others))


def sensitivity_1_for_2(patch: Patch) -> None:
    patch.setattr(prior_module, "SENSITIVITY", 1)


def modulo_bias(patch: Patch) -> None:
    def byte_modulo(u: Any, own: Any, d: int, A: int, B: int) -> Any:
        other = (u & np.uint64(255)) % np.uint64(d - 1)
        return np.where(u < np.uint64(A), own, other + (other >= own))

    patch.setattr(sampling, "sample_rr", _sample_rr(byte_modulo))


def fixed_seed(patch: Patch) -> None:
    patch.setattr(os, "urandom", lambda n: bytes(range(n)))


def cached_noise(patch: Patch) -> None:
    patch.setattr(prior_module, "discrete_laplace", functools.cache(discrete_laplace))


def float_thresholds(patch: Patch) -> None:
    exact = alias._entries

    def by_floats(weights: Any, bits: int) -> Any:
        entries, low = exact(weights, bits), np.uint64((1 << bits) - 1)
        return (entries >> np.uint64(bits)).astype(np.float64).astype(np.uint64) << np.uint64(bits) | entries & low

    patch.setattr(alias, "_entries", by_floats)


def epsilon_times_1_01(patch: Patch) -> None:
    right = Epsilon.exp_lower
    patch.setattr(Epsilon, "exp_lower", lambda self: right(Epsilon(self.nano * 101 // 100)))


def p_and_q_swapped(patch: Patch) -> None:
    def swapped(u: Any, own: Any, d: int, A: int, B: int) -> Any:
        other = u // np.uint64(-(-A // (d - 1)))
        return np.where(u >= np.uint64(A), own, other + (other >= own))

    patch.setattr(sampling, "sample_rr", _sample_rr(swapped))


BUGS: dict[str, tuple[Callable[[Patch], None], Callable[[], None]]] = {
    "an unrandomised row": (unrandomised_row, words_of_samplers),
    "wrong d": (wrong_d, exact_matrix),
    "duplicate output": (duplicate_output, words_of_samplers),
    "sensitivity 1 for 2": (sensitivity_1_for_2, prior_pays),
    "modulo bias": (modulo_bias, frequencies),
    "fixed seed": (fixed_seed, streams_differ),
    "cached noise": (cached_noise, noise_is_new_each_time),
    "float thresholds": (float_thresholds, words_of_samplers),
    "ε×1.01": (epsilon_times_1_01, exact_matrix),
    "p and q swapped": (p_and_q_swapped, frequencies),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str, monkeypatch: Patch) -> None:
    plant, check = BUGS[bug]
    check()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
