"""Sliders of a form: places of a fixed row of figures. Without scripts the form is sent by its button."""

from __future__ import annotations

from dataclasses import dataclass

from label_dp.errors import InvalidInput
from label_dp.numbers import BadSpelling, real_of, whole_of


@dataclass(frozen=True)
class Slider:
    """`figures` ascend."""

    name: str
    label: str
    figures: tuple[str, ...]

    def at(self, place: str) -> str:
        """Raises InvalidInput."""
        last = len(self.figures) - 1
        try:
            wanted = whole_of(place)
        except BadSpelling:
            wanted = -1
        if not 0 <= wanted <= last:
            raise InvalidInput(f"{self.label}: the place of the slider is a number from 0 to {last}.")
        return self.figures[wanted]

    def placed(self, figure: str) -> dict[str, object]:
        """As the macro `slider` shows it: at the place that is nearest to `figure`, which it says exactly."""
        try:
            wanted = real_of(figure)
            place = min(range(len(self.figures)), key=lambda i: abs(real_of(self.figures[i]) - wanted))
        except BadSpelling:  # no number, which the page says
            place, figure = 0, self.figures[0]
        return {"name": self.name, "label": self.label, "figures": self.figures, "place": place, "figure": figure}
