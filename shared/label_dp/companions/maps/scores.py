"""Scores as whole numbers: the public, monotone grid on which a map from scores to labels is fitted and applied."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from label_dp.errors import InvalidInput
from label_dp.numbers import decimal_of, whole_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FLOAT32 = "float32"
MAX_STEPS = 1 << 32
LARGEST = int(np.array(np.finfo(np.float32).max, np.float32).view(np.uint32))  # bits of the largest finite float
_RANGE = re.compile(r"(?P<low>[^:]{1,60}):(?P<high>[^:]{1,60}):(?P<steps>[0-9]{1,10})", re.ASCII)


@dataclass(frozen=True)
class ScoreGrid:
    """Numbering of scores: `float32`, or `LO:HI:STEPS`.

    `float32`: a score is rounded to the nearest 32-bit float, and those are numbered in order (scores beyond the
    largest count as it; −0 is 0). `LO:HI:STEPS`: so many equal steps from LO to HI, scores outside are the ends.

    Larger scores never get smaller numbers. Either party maps the same score to the same number.
    """

    low: Decimal | None = None
    high: Decimal | None = None
    steps: int | None = None

    @classmethod
    def parse(cls, text: str) -> ScoreGrid:
        """Parse a numbering. Raises InvalidInput."""
        if text == FLOAT32:
            return cls()
        match = _RANGE.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            low, high, steps = decimal_of(match["low"]), decimal_of(match["high"]), whole_of(match["steps"])
            usable = math.isfinite(steps / (float(high) - float(low)))
        except (ValueError, ZeroDivisionError, OverflowError):
            usable = False
        if not usable or not low < high or not 1 <= steps <= MAX_STEPS or not math.isfinite(float(high) - float(low)):
            raise InvalidInput(
                "Scores are numbered by 'float32', or by LO:HI:STEPS with LO below HI and 1 to 2³² steps, such as "
                "0:1:65536."
            )
        return cls(low, high, steps)

    def __str__(self) -> str:
        return FLOAT32 if self.steps is None else f"{self.low}:{self.high}:{self.steps}"

    @property
    def size(self) -> int:
        """Count of numbers: a score's is from 0 to `size` − 1."""
        return 2 * LARGEST + 1 if self.steps is None else self.steps

    def index(self, scores: FloatArray) -> IntArray:
        """Number finite scores float64[n], int64[n]. Raises InvalidInput for NaN and infinities."""
        scores = np.asarray(scores, np.float64)
        if not np.all(np.isfinite(scores)):
            raise InvalidInput("Every score must be a finite number.")
        if self.steps is None:
            most = float(np.finfo(np.float32).max)
            bits = np.clip(scores, -most, most).astype(np.float32).view(np.uint32).astype(np.int64)
            magnitude = bits & 0x7FFFFFFF
            numbers: IntArray = np.where(bits >> 31 == 0, LARGEST + magnitude, LARGEST - magnitude)
            return numbers
        low, high = float(str(self.low)), float(str(self.high))
        # differences and products round monotonically, so larger scores never get smaller numbers
        place = np.floor((np.clip(scores, low, high) - low) * (self.steps / (high - low)))
        return np.clip(place.astype(np.int64), 0, self.steps - 1)

    def outside(self, scores: FloatArray) -> npt.NDArray[np.bool_]:
        """Mark the finite scores float64[n] outside LO … HI, which count as its ends; by float32 none. bool[n]."""
        scores = np.asarray(scores, np.float64)
        if self.steps is None:
            return np.zeros(scores.shape, bool)
        return (scores < float(str(self.low))) | (scores > float(str(self.high)))

    def score(self, number: int) -> float:
        """Return the smallest score of a number (of `float32`: the float itself)."""
        if self.steps is None:
            magnitude = np.array(abs(number - LARGEST), np.uint32).view(np.float32)
            return float(magnitude) if number >= LARGEST else -float(magnitude)
        low, high = float(str(self.low)), float(str(self.high))
        return low + number * ((high - low) / self.steps)
