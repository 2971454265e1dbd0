"""The statement's picture of a channel says what its axis shows, and draws lines only where outputs are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from label_dp.documents.statement_pictures import picture
from label_dp.domain import Domain
from label_dp.losses import get_loss
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS

BEND = re.compile(r'<path d="M[^"]*(?:L[^"L]*){8,}" clip-path')  # a line through many points


def drawn(mechanism: str) -> str:
    domain = Domain.parse("0:60")
    prior = np.full(domain.k, 1 / domain.k)
    design = MECHANISMS[mechanism].design
    return str(picture(design(domain, prior, Epsilon.parse("1"), get_loss("squared"), {}, 10_000), prior))


@pytest.mark.parametrize(("mechanism", "joined"), [("balanced", False), ("discrete-laplace", True)])
def test_only_outputs_without_gaps_are_joined(mechanism: str, joined: bool) -> None:
    found = drawn(mechanism)
    assert ">output value<" in found
    assert ">label<" not in found
    assert "chance of the output" in found or "chance of neighbours" in found
    assert bool(BEND.search(found)) == joined


def test_a_picture_over_labels_says_so() -> None:
    assert ">label<" in drawn("one-bit")
