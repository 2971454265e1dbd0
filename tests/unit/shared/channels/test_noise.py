"""The length of the transform by which noise is convolved: what scipy would take, which a start need not load."""

from __future__ import annotations

import numpy as np
from scipy.fft import next_fast_len

from label_dp.channels.noise import quick_length


def test_the_quick_length_is_the_least_of_small_factors() -> None:
    lengths = [*range(1, 3000), *np.random.default_rng(0).integers(3000, 1 << 30, 1000).tolist()]
    assert [quick_length(n) for n in lengths] == [next_fast_len(n, real=True) for n in lengths]
