"""What is computed once and kept: a cell, its key, and the digest of the source files that decide it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
INFINITE = "inf"
LABELS_ONLY = "none"  # the learner of cells without a model

RANDOMIZING = (
    "labels_party/mechanisms/*.py",
    "labels_party/message/plan.py",
    "labels_party/message/engine.py",
    *(f"shared/label_dp/{name}.py" for name in ("class_names", "domain", "label_values", "losses", "moments")),
    *(f"shared/label_dp/{name}.py" for name in ("numbers", "prior_cells", "privacy")),
    "shared/label_dp/channels/*.py",
)
TRAINING = ("features_party/training/*.py", "features_party/training/learners/*.py")
# what trees of a size that nothing is validated for are made by: models of "quick" cells, and of what peers published
MODULES = ("capacity", "category_statistics", "cells", "class_likelihood", "column_cells", "correction", "draws")
MODULES += ("crossed_effects", "crossings", "effects", "encoding", "fitting", "learner", "links", "model", "progress")
MODULES += ("recentring", "threads", "words", "learners/__init__", "learners/comparison", "learners/ensemble")
TREES = tuple(f"features_party/training/{name}.py" for name in (*MODULES, "learners/trees"))
HARNESS = ("sources.py", "message.py", "sales.py")
OF_KIND = {
    "train": ("training.py",),
    "prior": ("randomizing.py",),
    "joint": ("randomizing.py",),
    "coverage": ("coverage.py",),
    "curve": ("curve.py", "training.py"),
    "conversions": ("conversions.py",),
    "rare": ("conversions.py",),
    "peers": (
        "conversions.py",
        "training.py",
        *(f"peers/{path.name}" for path in sorted((HERE / "peers").glob("*.py"))),
    ),
    "combined": ("combined.py",),
    "codes": ("codes.py",),
}
OF_SUMS = (
    "features_party/companions/codes.py",
    "features_party/companions/sum_models.py",
    "shared/label_dp/companions/kinds/sum.py",
)
TRAINED = ("train", "coverage", "curve", "conversions", "rare", "peers", "combined", "codes")


@dataclass(frozen=True)
class Cell:
    """One computation. `epsilon` is a decimal, or "inf" for the labels themselves; `options` canonical JSON.

    `kind`: "train" (a message, a model, its test error), "prior" (label loss over many private priors), "joint" (the
    density of true and randomized labels), "coverage" (how often the stated interval holds the true error),
    "conversions" and "rare" (models of labels of two values, as probabilities), "peers" (methods of others), "combined"
    (of several messages), "codes" (of sums by public codes), "curve" (no privacy on some of the rows).
    `capacity` scales the effective rows that the size of a quick learner is chosen for; `rows` caps the training rows,
    0 for all.
    """

    kind: str
    data: str
    seed: int
    epsilon: str
    mechanism: str = "none"
    options: str = "{}"
    prior: str = "estimate"
    prior_epsilon: str = "auto"
    prior_method: str = "project"
    correction: str = "auto"
    learner: str = "quick"
    capacity: float = 1.0
    rows: int = 0

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @property
    def private(self) -> bool:
        return self.epsilon != INFINITE

    def __str__(self) -> str:
        parts = [self.kind, self.data, f"seed {self.seed}", f"ε {self.epsilon}", self.mechanism]
        parts += [self.options] if self.options != "{}" else []
        return " ".join([*parts, self.correction, self.learner])


def options_text(options: dict[str, object]) -> str:
    return json.dumps(options, sort_keys=True)


def order(epsilon: str) -> Decimal:
    """For sorting: the number, infinity last."""
    return Decimal("Infinity") if epsilon == INFINITE else Decimal(epsilon)


def digest(cell: Cell) -> str:
    """12 hex digits over the files that decide such a cell: a change there recomputes it."""
    message = cell.learner.startswith("message")  # of a peer's cell: what this service learns from it
    return digest_of(cell.kind, cell.data, cell.learner == "quick" or (cell.kind == "peers" and not message))


@lru_cache(maxsize=64)
def digest_of(kind: str, data: str, trees: bool) -> str:
    from tests.benchmarks.utility.sources import PAPER, mark

    patterns = RANDOMIZING + ((TREES if trees else TRAINING) if kind in TRAINED else ())
    patterns += ("tests/benchmarks/utility/paper/*.py",) if data in PAPER else ()
    patterns += OF_SUMS if kind == "codes" else ()
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    files += [HERE / name for name in (*HARNESS, *OF_KIND[kind])] + [ROOT / "tests/support/real_data.py"]
    seen = hashlib.sha256(mark(data).encode())
    for path in files:
        seen.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return seen.hexdigest()[:12]
