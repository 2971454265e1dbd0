"""Laplace noise on a lattice, continuous and discrete."""

from __future__ import annotations

import math
from dataclasses import dataclass

from label_dp.channels.noise import NoiseChannel
from label_dp.channels.noise_weights import laplace_period


@dataclass(frozen=True, eq=False, kw_only=True)
class LaplaceChannel(NoiseChannel):
    """Laplace noise of scale cells/ε lattice steps, P[t] ∝ e^(−ε·|t|/cells), clipped at the reach.

    A geometric tail is memoryless: the part beyond an end exceeds it by 1/(e^(ε/cells) − 1) steps on average for any
    label. So moving the end outputs by that much undoes the bias of clipping exactly, and with less variance than
    unclipped noise has.
    """

    kind = "laplace"

    def _period(self) -> list[int]:
        return laplace_period(self.noise_epsilon, self.cells, self.peak)

    def _outward(self) -> float:
        return 1.0 / math.expm1(float(self.noise_epsilon) / self.cells)
