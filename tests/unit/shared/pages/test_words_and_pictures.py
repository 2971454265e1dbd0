"""Numbers, days and pictures as pages show them."""

from __future__ import annotations

import re

from label_dp.pages.engine import FILTERS
from label_dp.pages.pictures import Curve, curves


def test_a_count_is_exact_and_a_measure_has_four_digits() -> None:
    number = FILTERS["number"]
    assert [number(value) for value in (17_379, 17_379.4, 0.123456, None)] == ["17,379", "17,380", "0.1235", "–"]


def test_no_line_ends_within_a_day() -> None:
    assert FILTERS["day"]("2026-11-26T10:00:00Z") == "<time>2026-11-26</time>"
    assert FILTERS["day"]("<script>!!") == "<time>&lt;script&gt;!!</time>"
    assert FILTERS["day"](None) == "–"


def test_the_name_of_an_axis_with_long_numbers_is_inside_of_the_picture() -> None:
    drawn = [Curve("trees", [1, 2, 3], [100_000.0, 300_000.0, 200_000.0])]
    text = curves("Loss", "Loss.", "trees", "loss on corrected labels", drawn)
    (place,) = re.findall(r'x="([-0-9.]+)"[^>]*>loss on corrected', text)
    assert float(place) > 10  # a letter is that high, and lies on its side
