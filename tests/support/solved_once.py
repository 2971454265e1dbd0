"""Channels that tests of many worlds design for the same prior, domain, ε and options are designed once.

A design is a function of its arguments alone, none of them a raw label (an import contract keeps mechanisms pure): two
worlds that design for other arguments get other channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from labels_party.mechanisms.catalogue import MECHANISMS


def _identity(value: Any) -> Any:
    """What tells arguments apart: arrays by their bytes, options by their items."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return (
        tuple(sorted((n, tuple(v) if isinstance(v, list) else v) for n, v in value.items()))
        if isinstance(value, dict)
        else value
    )


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def known(*about: Any) -> Any:
        key = tuple(map(_identity, about))
        if key not in kept:
            kept[key] = function(*about)
        return kept[key]

    return known


DESIGNS = {name: _once(mechanism.design) for name, mechanism in MECHANISMS.items()}


@contextmanager
def solved_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, design in DESIGNS.items():
            patch.setitem(MECHANISMS, name, dataclasses.replace(MECHANISMS[name], design=design))
        yield
