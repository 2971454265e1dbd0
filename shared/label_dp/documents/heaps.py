"""Labels that pile up at an end of the domain, detected in the message's private prior, free of charge.

A domain in the wrong unit (cents for euros) clips many labels to one end. The prior is paid for and published, so
reading it costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from label_dp.documents.manifest import Manifest

Prior = npt.NDArray[np.float64]

PRIVATE = ("estimated", "carried over")  # sources of a prior that tells of labels
LEAST = 0.03  # smallest reported share of all labels
ALONE, WIDE = 4.0, 1.5  # how much denser than beside it: an end of its own, and one that shares a cell with others
SURE = 4.0  # standard deviations of the prior's noise


@dataclass(frozen=True)
class Heap:
    """Pile of labels at an end of the domain."""

    end: Literal["lower", "upper"]
    label: float
    share: float  # of all labels under the private prior
    clipped: bool  # whether labels beyond count as the end

    def as_json(self) -> dict[str, object]:
        return {"end": self.end, "label": self.label, "share": round(self.share, 4), "told": self.told}

    @property
    def told(self) -> str:
        from label_dp.documents.statement_text import number, percent  # where there is something to say

        beyond = f" Whatever lies beyond counts as {number(self.label)}." if self.clipped else ""
        return (
            f"About {percent(self.share)} of the labels pile up at the {self.end} end of the domain, "
            f"{number(self.label)}, by the private prior.{beyond} If you did not expect that, compare the unit of the "
            "labels with that of the domain (cents for euros?)."
        )


def heaps(manifest: Manifest, prior: Prior | None) -> list[Heap]:
    """Find the ends with a pile; none without a private prior, for classes, or for fewer than 8 labels."""
    domain = manifest.domain
    if prior is None or manifest.prior.source not in PRIVATE or domain.names or domain.k < 8:
        return []
    values, epsilon = domain.values, float(manifest.epsilon.prior)
    noise = 2 * math.sqrt(2) / (epsilon * manifest.n) if manifest.prior.source == PRIVATE[0] and epsilon else 0.0
    piles = []
    ends: tuple[tuple[Literal["lower", "upper"], Prior], ...] = (("upper", prior[::-1]), ("lower", prior))
    for end, inwards in ends:
        # many labels are zero, which is where sums and counts begin
        if end == "lower" and domain.from_zero:
            continue
        share, expected, width = _at_the_end(inwards)
        denser = ALONE if width == 1 else WIDE
        if share >= LEAST and share > denser * expected and share - expected > SURE * noise:
            label = float(values[-1] if end == "upper" else values[0])
            piles.append(Heap(end, label, share, manifest.out_of_domain == "clip"))
    return piles


def _at_the_end(prior: Prior) -> tuple[float, float, int]:
    """Return the share of a prior's first cell, its share at the density of the next cell, and its number of labels. A
    prior is constant within a cell."""
    changes = np.flatnonzero(~np.isclose(prior[1:], prior[:-1], rtol=1e-9, atol=1e-15)) + 1
    width = int(changes[0]) if changes.size else len(prior)
    if width == len(prior):
        return 1.0, 1.0, width
    share = float(prior[:width].sum())
    return share, float(prior[width]) * width, width
