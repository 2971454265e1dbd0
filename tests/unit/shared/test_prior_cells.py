"""The public cells of a prior: a partition, even between the ends, or with zero apart and each wider than the one
before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from label_dp.prior_cells import APART, prior_cells


@given(st.integers(1, 2000), st.integers(1, 150), st.booleans())
def test_as_many_cells_as_asked_for_that_partition_the_labels(k: int, cells: int, from_zero: bool) -> None:
    ends = prior_cells(k, cells, from_zero)
    assert (ends[0], ends[-1], len(ends) - 1) == (0, k, min(k, cells))
    assert np.all(np.diff(ends) >= 1)
    if not from_zero:
        widths = np.diff(ends)
        apart = len(widths) >= APART
        assert np.ptp(widths[1:-1] if apart else widths) <= 1
        assert not apart or widths[0] == widths[-1] == 1


@pytest.mark.parametrize(("k", "cells"), [(401, 32), (1_000_001, 32), (1_000_001, 8), (2001, 64)])
def test_zero_is_apart_and_cells_grow_by_a_factor(k: int, cells: int) -> None:
    ends = prior_cells(k, cells, True)
    assert ends[1] == 1
    # rounding to whole labels hardly shows from some size on
    factors, even = (end[1:][end[:-1] >= 30] / end[:-1][end[:-1] >= 30] for end in (ends, prior_cells(k, cells, False)))
    assert factors.max() / factors.min() < 1.05
    assert even.max() / even.min() > 1.3  # cells that do not grow would be seen
