"""Labels at an end of the domain, as a private prior shows them: a heap is said, a tail and noise are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from label_dp.documents.heaps import heaps
from label_dp.domain import Domain
from label_dp.prior_cells import prior_cells
from label_dp.privacy import Epsilon

N = 100_000


def manifest(domain: str, source: str = "estimated", n: int = N, epsilon: str = "0.05", rule: str = "clip") -> Any:
    found = SimpleNamespace(n=n, out_of_domain=rule, prior=SimpleNamespace(source=source))
    found.epsilon = SimpleNamespace(prior=Epsilon.parse(epsilon))
    found.domain = Domain.parse(domain)
    return found


def prior_of(labels: Any, domain: str, cells: int = 32) -> Any:
    """As it is estimated of clipped labels, without noise: the mass of each cell spread evenly in it."""
    k, values = Domain.parse(domain).k, Domain.parse(domain).values
    index = np.clip(np.searchsorted(values, labels, side="right") - 1, 0, k - 1)
    counts = np.bincount(index, minlength=k)
    ends = prior_cells(k, cells, float(values[0]) == 0.0)
    widths = np.diff(ends)
    return np.repeat(np.add.reduceat(counts, ends[:-1]) / widths, widths) / len(labels)


RNG = np.random.default_rng(5)
EUROS = RNG.exponential(60, N)


@pytest.mark.parametrize("domain", ["0:400", "-1:400"])
def test_cents_in_a_domain_of_euros_pile_up(domain: str) -> None:
    (found,) = heaps(manifest(domain), prior_of(EUROS * 100, domain))
    assert (found.end, found.label) == ("upper", 400.0)
    assert found.share > 0.9
    assert "pile up at the upper end of the domain, 400" in found.told
    assert "beyond counts as 400" in found.told


@pytest.mark.parametrize("domain", ["0:400", "0:400:0.5", "-20:400"])
def test_a_tail_that_runs_out_is_no_heap(domain: str) -> None:
    assert heaps(manifest(domain), prior_of(EUROS, domain)) == []
    assert heaps(manifest(domain), prior_of(RNG.uniform(0, 400, N), domain)) == []


def test_the_lower_end_unless_labels_begin_at_zero() -> None:
    (found,) = heaps(manifest("-50:400"), prior_of(np.concatenate([EUROS, np.full(N // 5, -300.0)]), "-50:400"))
    assert (found.end, found.label) == ("lower", -50.0)
    zeros = prior_of(np.concatenate([EUROS, np.zeros(5 * N)]), "0:400")
    assert heaps(manifest("0:400"), zeros) == []


def test_nothing_is_said_of_what_no_epsilon_paid_for_nor_of_noise() -> None:
    heaped = prior_of(EUROS * 100, "-1:400")
    for source in ("uniform", "declared public by the owner", "not used"):
        assert heaps(manifest("-1:400", source), heaped) == []
    assert heaps(manifest("-1:400"), None) == []
    assert heaps(manifest("0:1"), np.array([0.1, 0.9])) == []
    assert heaps(manifest("a,b,c"), np.array([0.1, 0.1, 0.8])) == []
    some = prior_of(np.concatenate([EUROS, np.full(N // 20, 1e6)]), "-1:400")
    assert len(heaps(manifest("-1:400"), some)) == 1
    assert heaps(manifest("-1:400", n=100), some) == []  # the noise of so small a prior is as large
    assert len(heaps(manifest("-1:400", "carried over", n=100, epsilon="0"), some)) == 1


def test_where_labels_beyond_are_refused_none_count_as_the_end() -> None:
    (found,) = heaps(manifest("-1:400", rule="refuse"), prior_of(EUROS * 100, "-1:400"))
    assert "beyond" not in found.told
