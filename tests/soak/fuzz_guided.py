"""One target under atheris (coverage-guided), in a process of its own: `python -m tests.soak.fuzz_guided TARGET …`.

atheris is no dependency of the project (`pip install atheris`, Linux and CPython 3.11 to 3.13): where it is missing,
the soak says so and runs its own seeded mutations alone.
"""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(target: str, arguments: list[str]) -> None:
    atheris: Any = importlib.import_module("atheris")

    with atheris.instrument_imports(include=["label_dp", "features_party.receive", "labels_party.labels"]):
        from tests.support.fuzz_targets import Targets, corpus, mutated

    targets, kept = Targets(Path(tempfile.mkdtemp(prefix="fuzz-"))), corpus(target)

    def one_input(data: bytes) -> None:
        targets.run(target, data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed = mutated(data, rng, kept) if rng.random() < 0.5 else atheris.Mutate(data, most)
        return bytes(changed)[:most]

    atheris.Setup([sys.argv[0], *arguments], one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
