"""The kept corpus of every reader of foreign bytes, and some hundred seeded mutations of each.

What a longer run (`tests/soak/soak_tampering.py`) finds goes into `corpus/`, named after what it is.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.fuzz_targets import CORPUS, Targets, corpus, mutated

NAMES = sorted(path.name for path in CORPUS.iterdir())
MUTATIONS, SEED = 200, 20261121
MOST_GROWN = 256 << 20  # an upload may become 64 MiB and more; what lies claims 2 GB


@pytest.fixture
def targets(tmp_path: Path) -> Targets:
    return Targets(tmp_path)


def test_every_target_has_a_corpus(targets: Targets) -> None:
    assert sorted(targets.all) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_and_its_mutations_are_taken_or_refused(name: str, targets: Targets) -> None:
    kept, rng = corpus(name), random.Random(f"{name}-{SEED}")
    taken = 0
    for data in [*kept, *(mutated(rng.choice(kept), rng, kept) for _ in range(MUTATIONS))]:
        before = pa.default_memory_pool().max_memory()
        taken += targets.run(name, data)  # refusals only: whatever else is raised fails the test
        assert pa.default_memory_pool().max_memory() - before < MOST_GROWN
    assert taken, "the valid one must pass"


def test_a_reader_that_lets_something_else_escape_is_caught(targets: Targets) -> None:
    def escaping(data: bytes) -> bool:
        raise KeyError("payload")

    targets.all["envelope"] = escaping
    with pytest.raises(KeyError):
        targets.run("envelope", b"{}")
