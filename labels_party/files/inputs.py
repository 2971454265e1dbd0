"""Inputs that a command may read from a file: a domain, a loss, a prior, a rule of events. REST takes the values
themselves."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from label_dp.columnar.tables import read_bytes, read_table, refuse_pipe
from label_dp.documents.bundle import verify
from label_dp.domain import BINARY, Domain
from label_dp.errors import InvalidDomain, InvalidFile, InvalidInput, InvalidPrior, InvalidRequest
from label_dp.label_values import spelled
from label_dp.losses import LOSSES, load_matrix_loss
from label_dp.privacy import Epsilon
from label_dp.schemas.events import EventRule
from label_dp.schemas.population import Population as PopulationAsked
from label_dp.schemas.release import LossMatrix, Release
from label_dp.schemas.validation import Model, as_model
from labels_party.bootstrap import Services
from labels_party.ledger.populations import Population, declare
from labels_party.message.plan import CARRIED, GivenPrior, ReleaseRequest, loss_json
from labels_party.message.priors import check_audiences, read_prior
from labels_party.message.request import RULES, make_request


def population_of(asked: PopulationAsked) -> Population:
    """Check a declared population; its domain may be a file with a column `label` of numbers or names. Raises
    InvalidInput and its kinds."""
    domain = _in_file(str(asked.domain))
    return declare(asked) if domain is None else declare(asked, domain)


def undeclared_population(domain: str, budget: str | None, epsilons: Sequence[str]) -> Population:
    """Rules of a population that is not declared yet, to plan by its domain; `budget` None: the largest ε. Raises
    InvalidInput and its kinds."""
    lifetime = budget if budget is not None else max(epsilons, key=Epsilon.parse, default="1")
    return population_of(PopulationAsked(name="not declared", label="any", domain=domain, lifetime_epsilon=lifetime))


def toml_as(path: Path, schema: type[Model]) -> Model:
    """Read TOML whose top level is `schema`: a rule of events, a policy. Raises InvalidFile, InvalidInput."""
    refuse_pipe(path)
    try:
        members = tomllib.loads(read_bytes(path).decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidFile(f"'{path}' is not TOML: it is no text in UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(f"'{path}' is not TOML: {error}.") from None
    try:
        return as_model(members, schema)
    except InvalidRequest as error:
        raise InvalidInput(f"In '{path}': {error.detail}") from None


def rule_of(path: Path) -> EventRule:
    """Read a rule of events, as `toml_as`."""
    return toml_as(path, EventRule)


def _in_file(text: str) -> Domain | None:
    """Read the domain from the file `text`; None if the text is a domain itself. Raises InvalidDomain."""
    path = Path(text)
    if text == BINARY or ((":" in text or "," in text) and not _exists(path)):
        return None
    if not _exists(path):
        raise InvalidDomain(
            f"'{text}' is neither a domain LO:HI[:STEP], nor names with commas between them, nor 'binary', nor a file."
        )
    column = spelled(read_table(path, text_columns=["label"], columns=["label"])["label"])
    if any(value is None for value in column):
        raise InvalidDomain(f"A value of the domain file '{text}' is missing.")
    return Domain.from_list(column)


def request_of(services: Services, population: Population, asked: Release) -> ReleaseRequest:
    """Build the typed request; its loss and its prior may be files. Raises InvalidInput and its kinds."""
    prior = None
    if isinstance(asked.loss, str) and asked.loss not in LOSSES and _exists(Path(asked.loss)):
        loss = LossMatrix(**loss_json(load_matrix_loss(asked.loss)))
        asked = asked.model_copy(update={"loss": loss})
    if isinstance(asked.prior, str) and asked.prior not in RULES and _exists(Path(asked.prior)):
        prior = _prior(services, population, Path(asked.prior))
    return make_request(services.priors, population, asked, prior)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or with an illegal character
        return False


def _prior(services: Services, population: Population, path: Path) -> GivenPrior:
    if path.resolve().is_relative_to(services.home.path.resolve()):
        raise InvalidPrior("A prior inside the home may not be published; name the message that was written out.")
    envelope = path / "manifest.dsse.json" if path.is_dir() else path.with_name(path.name + ".dsse.json")
    stem = path.name.removesuffix(".prior.parquet")
    if path.with_name(f"{stem}.parquet.dsse.json").exists() or path.with_name("manifest.dsse.json").exists():
        raise InvalidPrior("This prior is part of a message: name the message itself, whose signature is then checked.")
    if envelope.exists():
        # a message: only our own signature shows that ε was paid for its prior
        verified = verify(path, services.own_keys.of(envelope.read_bytes()), None)
        manifest = verified.manifest
        if manifest.domain != population.domain:
            raise InvalidPrior("The message's prior is over another label domain than this population's.")
        if verified.prior_path is None:
            raise InvalidPrior("The message carries no prior file; use a release whose mechanism estimated one.")
        check_audiences(population, manifest.audiences)
        paid_by = manifest.prior.release if manifest.prior.source == CARRIED else manifest.id
        return GivenPrior(read_prior(verified.prior_path, population.domain), paid_by)
    return GivenPrior(read_prior(path, population.domain))
