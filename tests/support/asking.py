"""What tests ask for, as requests and commands do: by the schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from label_dp.domain import Domain
from label_dp.progress import Progress
from label_dp.schemas.population import Population as PopulationAsked
from label_dp.schemas.predictor import Predictor
from label_dp.schemas.release import Release
from labels_party.bootstrap import Services
from labels_party.files.inputs import request_of
from labels_party.files.jobs import ACTOR, LabelsFile, run
from labels_party.files.message import Message
from labels_party.ledger.populations import Population, declare
from labels_party.message.plan import ReleaseRequest


def population(name: str, label: str, domain: Domain, lifetime: object, **rules: Any) -> Population:
    """Declared, not stored."""
    return declare(PopulationAsked(name=name, label=label, domain="", lifetime_epsilon=str(lifetime), **rules), domain)


def predictor(**asked: Any) -> Predictor:
    """Of no batch in particular."""
    return Predictor(**({"batch": ""} | asked))


def request(services: Services, population: Population, **asked: Any) -> ReleaseRequest:
    """As `privatize` makes it: with files where a loss or a prior may be one."""
    return request_of(services, population, Release(**asked))


def privatize(
    services: Services,
    labels: Path,
    population: Population,
    wanted: ReleaseRequest,
    out: Path,
    examples: Path | None = None,
    actor: str = ACTOR,
    progress: Progress = lambda _what, _share: None,
    id_prefix: str | None = None,
) -> dict[str, Any]:
    """The command, of a file with the column example_id and that of the population's label."""
    file = LabelsFile(labels, "example_id", population, examples, id_prefix)
    return run(services, file, Message(wanted, out, actor), progress)
