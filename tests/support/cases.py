"""Cases of one test of which `make test` runs the most telling ones, and `make check` the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def cases(values: Iterable[Any], light: Callable[[Any], bool]) -> list[Any]:
    """Values of a parameter, or tuples of several; those that are not `light` are marked `extended`."""
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=() if light(each) else pytest.mark.extended)
        for each in values
    ]
