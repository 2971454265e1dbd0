"""Staircase noise on a lattice, continuous and discrete."""

from __future__ import annotations

from dataclasses import dataclass

from label_dp.channels.noise import NoiseChannel
from label_dp.channels.noise_weights import staircase_period
from label_dp.errors import InvalidMechanism


@dataclass(frozen=True, eq=False, kw_only=True)
class StaircaseChannel(NoiseChannel):
    """Staircase noise (Geng & Viswanath 2014): constant up to `width` = γ·cells steps, then e^−ε times that up to
    `cells`, and so on, each period e^−ε times the one before. 1 ≤ width ≤ cells.

    Clipped to the domain, the correction of the ends is the one of least squared bias over the lattice.
    """

    kind = "staircase"
    members = (*NoiseChannel.members, "width")
    width: int

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.cells:
            raise InvalidMechanism("The upper step of a staircase is between 1 and all of its cells wide.")
        super().__post_init__()

    def _period(self) -> list[int]:
        return staircase_period(self.noise_epsilon, self.cells, self.width, self.peak)

    def _outward(self) -> float:
        if self.reach > 0:
            return 0.0
        lowest, highest = self._to_ends
        slope = highest - lowest
        return -float(self._drift @ slope) / float(slope @ slope)

    def written(self) -> dict[str, object]:
        return super().written() | {"width": str(self.width)}
