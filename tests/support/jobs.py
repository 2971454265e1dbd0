"""What an attempt of an answer gets, without a party: for kinds that are asked to compute alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from label_dp.privacy import EpsilonSplit
from labels_party.ledger.populations import Population
from labels_party.work.kind import Job, Work


def job(
    population: Population,
    labels: Any,
    n: int,
    split: EpsilonSplit,
    plan: dict[str, Any],
    inputs: Path | None = None,
    features: str = "",
) -> Job:
    nothing: Any = None
    batch: Any = type("Sealed", (), {"id": "bat_1", "n": n})()
    row = dict.fromkeys(Work.__dataclass_fields__)
    row |= {"id": "ans_1", "plan": plan, "epsilon": split.as_json(), "features": features}
    work: Any = Work(**row)  # type: ignore[arg-type]  # what no kind looks at is not there
    return Job(work, batch, population, "2030-01-01", nothing, labels, nothing, inputs)
