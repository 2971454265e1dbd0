"""A labels party that signs what a test sends, and its key."""

from __future__ import annotations

import pytest

from label_dp.documents.signing import VerifyingKey
from tests.support.messages import Sender


@pytest.fixture(scope="module")
def sender() -> Sender:
    return Sender()


@pytest.fixture(scope="module")
def key(sender: Sender) -> VerifyingKey:
    return sender.key.public
