"""Cases of one test of which `make test` runs the most telling ones, and `make check` the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def cases(values: Iterable[Any], light: Callable[[Any], bool]) -> list[Any]:
    """Values of a parameter; those that are not `light` are marked `extended`."""
    return [value if light(value) else pytest.param(value, marks=pytest.mark.extended) for value in values]
