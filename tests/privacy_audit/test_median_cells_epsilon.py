"""Calibrations by medians of cells, audited from outside: maps of neighbouring labels prove no more than was paid.

Both bounds that must hold are wrong with probability ALPHA at most; that is how often this file fails by chance. With
12,000 maps a side of five labels in one cell an auditor proves over a quarter of an ε of 1: most candidates lie
where the replaced label makes them more likely. Choices at two and a half times the rate, the control, are found by
two thirds of the maps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.companions.audit_bounds import audit
from labels_party.companions.mechanisms.isotonic.binned import BinnedMedians
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.mechanisms.entropy import Keystream

pytestmark = pytest.mark.extended

ALPHA = 1e-6
MAPS = 12_000
LABELS, NEIGHBOUR = [0, 0, 2, 2, 40], [0, 2, 2, 40, 40]


class Counted(Keystream):
    words = 0

    def uint64(self, n: int) -> np.ndarray:
        self.words += n
        return super().uint64(n)


def maps(labels: list[int], epsilon: str, source: Keystream, number: int = MAPS) -> list[Any]:
    """What a receiver sees of each map: whether its value lies below 2."""
    plan = BinnedMedians(Domain.parse("0:40"), (Cells.even(1, 1),), len(labels), Epsilon.parse(epsilon))
    x, y = np.zeros(len(labels), np.int64), np.array(labels)
    return [bool(plan.fit(x, y, source).values[0] < 1.5) for _ in range(number)]


def test_maps_of_neighbours_prove_no_more_than_was_paid_and_draw_as_much() -> None:
    sources = Counted(), Counted()
    seen = [maps(labels, "1", source) for labels, source in zip((LABELS, NEIGHBOUR), sources, strict=True)]
    assert 0.25 < audit(*seen, ALPHA / 2) <= 1
    assert sources[0].words == sources[1].words > MAPS


def test_control_choices_at_a_larger_rate_are_found() -> None:
    one, two = (maps(labels, "2.5", Keystream(), MAPS * 2 // 3) for labels in (LABELS, NEIGHBOUR))
    assert audit(one, two, ALPHA / 2) > 1
