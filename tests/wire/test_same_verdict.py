"""Both verifiers, the product's and the standalone one, say the same of every signed document, honest or changed.

Documents of every kind are changed at random, seeded, and signed by the right key, so that what they say alone decides.
The long version is `tests/soak/soak_same_verdict.py`.
"""

from __future__ import annotations

import collections
import itertools
import random

import pytest

from deploy.verify_standalone import document as standalone_document
from label_dp.documents.signing import SigningKey
from tests.support.golden_documents import Document, documents
from tests.support.mutations import mutants
from tests.support.verdicts import ACCEPTED, verdicts

MUTATIONS, SEED = 1500, 20261122


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture(scope="module")
def golden(key: SigningKey) -> dict[str, Document]:
    return documents(key.public.id)


def disagreements(golden: dict[str, Document], key: SigningKey, count: int, seed: int) -> tuple[list[str], int]:
    """(what the two verifiers say differently, how many changed documents both accept)."""
    found, accepted = [], 0
    for name, document in itertools.islice(mutants(golden, random.Random(seed)), count):
        product, standalone = verdicts(name, document, key)
        accepted += product == standalone == ACCEPTED
        if (product == ACCEPTED) != (standalone == ACCEPTED):
            changed = {k: document.get(k) for k in {*golden[name], *document} if golden[name].get(k) != document.get(k)}
            found.append(f"{name}: product '{product}', standalone '{standalone}', of {changed}"[:800])
    return found, accepted


def test_every_golden_document_is_accepted_by_both(golden: dict[str, Document], key: SigningKey) -> None:
    kinds = collections.Counter(name.split(":")[0] for name in golden)
    assert set(kinds) == {
        "message",
        "calibration",
        "median",
        "rectangle",
        "linear model",
        "sums",
        "prediction",
        "receipt",
    }
    for name, document in golden.items():
        assert (name, verdicts(name, document, key)) == (name, (ACCEPTED, ACCEPTED))


def test_both_say_the_same_of_changed_documents(golden: dict[str, Document], key: SigningKey) -> None:
    found, accepted = disagreements(golden, key, MUTATIONS, SEED)
    assert found == []
    assert MUTATIONS // 40 < accepted < MUTATIONS // 3, "most changes matter, and some, such as of a name, do not"


def test_a_verifier_that_skips_a_check_is_caught(
    golden: dict[str, Document], key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone_document, "_check_unit", lambda d: None)
    found, _ = disagreements(golden, key, MUTATIONS // 4, SEED)
    assert found
    assert all("'unit'" in line or "epsilon" in line for line in found)
