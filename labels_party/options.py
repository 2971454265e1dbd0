"""From what a person or a program wrote (command line, REST) to typed requests; both siblings parse the same way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Connection

from labels_party.bootstrap import Services
from labels_party.budget.populations import DEFAULT_AUDIENCE, Population, declare
from labels_party.labels.batches import require_sealed
from labels_party.predictors.asked import Asked
from labels_party.release.clipping import parse_clipping
from labels_party.release.plan import CARRIED, DEFAULT_MECHANISM, ReleaseRequest
from labels_party.release.preview import preview
from labels_party.release.priors import GivenPrior, check_audiences, read_prior
from labels_party.release.request import LATEST, make_request
from shared.domain import Domain
from shared.errors import InvalidDomain, InvalidInput, InvalidPrior, NotFound
from shared.losses import LOSSES, Loss, load_matrix_loss
from shared.message.bundle import verify
from shared.privacy import ZERO, Epsilon, PrivacyUnit, parse_delta
from shared.tables import read_table

MOST_EPSILONS = 16


def parse_domain(text: str) -> Domain:
    """`LO:HI[:STEP]`, or a Parquet or CSV file with a column `label`."""
    path = Path(text)
    if ":" in text and not path.exists():
        return Domain.parse(text)
    if not path.exists():
        raise InvalidDomain(f"'{text}' is neither a domain LO:HI[:STEP] nor a file.")
    column = read_table(path, text_columns=["label"], columns=["label"])["label"].to_pylist()
    if any(value is None for value in column):
        raise InvalidDomain(f"A value of the domain file '{text}' is missing.")
    return Domain.from_values(column)


def parse_population(
    name: str,
    label: str,
    domain: Domain,
    lifetime: str | int | float,
    *,
    out_of_domain: str = "clip",
    missing_label: str | int | float | None = None,
    audiences: list[str] | None = None,
    unit_column: str | None = None,
    max_examples_per_unit: int | None = None,
    four_eyes: bool = False,
    retention_days: int | None = None,
    alert_percent: list[int] | None = None,
    lifetime_delta: str | int | float = "0",
) -> Population:
    return declare(
        name,
        label,
        domain,
        Epsilon.parse(lifetime, positive=True, name="the lifetime ε (budget)"),
        out_of_domain=out_of_domain,
        missing_label=missing_label,
        audiences=tuple(audiences or [DEFAULT_AUDIENCE]),
        unit=PrivacyUnit(unit_column, max_examples_per_unit),
        four_eyes=four_eyes,
        retention_days=retention_days,
        alert_percent=tuple(alert_percent or ()),
        lifetime_delta=parse_delta(lifetime_delta),
    )


def parse_request(
    services: Services,
    population: Population,
    *,
    epsilon: str | int | float,
    mechanism: str = DEFAULT_MECHANISM,
    loss: str | Loss = "squared",
    prior: str | dict[str, Any] | None = None,
    prior_epsilon: str | int | float = "auto",
    prior_method: str = "project",
    clip: str | list[Any] | None = None,
    unclipped: bool = False,
    tight: bool = False,
    additional_release: bool = False,
    clip_quantile: str | float | list[Any] | None = None,
    clip_epsilon: str | int | float | None = None,
    files: bool = True,
) -> ReleaseRequest:
    """A typed request; with `files` False (REST) no path that the caller named is opened. Raises InvalidInput."""
    if isinstance(loss, str) and loss not in LOSSES and files and Path(loss).exists():
        loss = load_matrix_loss(loss)
    given: Any = prior
    if isinstance(prior, str) and prior not in ("estimate", "uniform", LATEST):
        if not files or not Path(prior).exists():
            raise InvalidPrior("The prior is 'estimate', 'uniform', 'latest', an existing file, or an own message.")
        given = _prior_from_path(services, population, Path(prior))
    return make_request(
        services.priors,
        population,
        epsilon=epsilon,
        mechanism=mechanism,
        loss=loss,
        prior=given,
        prior_epsilon=prior_epsilon,
        prior_method=prior_method,
        clip=clip,
        unclipped=unclipped,
        tight=tight,
        additional_release=additional_release,
        clip_quantile=clip_quantile,
        clip_epsilon=clip_epsilon,
    )


def _prior_from_path(services: Services, population: Population, path: Path) -> GivenPrior:
    if path.resolve().is_relative_to(services.home.path.resolve()):
        raise InvalidPrior(
            "A prior inside the home folder may not be published; name the message that was written out."
        )
    envelope = path / "manifest.dsse.json" if path.is_dir() else path.with_name(path.name + ".dsse.json")
    stem = path.name.removesuffix(".prior.parquet")
    if path.with_name(f"{stem}.parquet.dsse.json").exists() or path.with_name("manifest.dsse.json").exists():
        raise InvalidPrior("This prior is part of a message: name the message itself, whose signature is then checked.")
    if envelope.exists():
        # a message: only our own signature makes its prior one that ε was paid for
        verified = verify(path, services.key.public, None)
        manifest = verified.manifest
        if manifest.read_domain() != population.domain:
            raise InvalidPrior("The message's prior is over another label domain than this population's.")
        if verified.prior_path is None:
            raise InvalidPrior("The message carries no prior file; use a release whose mechanism estimated one.")
        check_audiences(population, manifest.audiences)
        paid_by = manifest.prior.release if manifest.prior.source == CARRIED else manifest.release
        return GivenPrior(read_prior(verified.prior_path, population.domain), paid_by)
    return GivenPrior(read_prior(path, population.domain))


def make_preview(
    services: Services,
    population_name: str,
    epsilons: Sequence[str | int | float],
    loss: str,
    n: int | None,
    batch_id: str | None,
    prior: str | None = None,
    clip_quantile: str | None = None,
    clip_epsilon: str | None = None,
) -> dict[str, Any]:
    """What each mechanism would give at each ε, under the newest published prior of the population or a uniform one;
    with `prior` "latest" that prior also takes the place of an estimated one, as it would in a release. With
    `clip_quantile` each ε also pays for clipping bounds, which are put where that prior would have them."""
    wanted = [Epsilon.parse(epsilon, positive=True) for epsilon in epsilons]
    if not 1 <= len(wanted) <= MOST_EPSILONS:
        raise InvalidInput(f"A plan is made for 1 to {MOST_EPSILONS} values of ε.")
    clipping = parse_clipping(clip_quantile, clip_epsilon)
    if prior not in (None, "estimate", LATEST):
        raise InvalidPrior("A plan's prior is 'estimate' or 'latest'.")

    def look(connection: Connection) -> tuple[Population, int, Epsilon]:
        population = services.populations.get(connection, population_name)
        rows, spent = n, ZERO
        if batch_id is not None:
            batch, owner = services.batches.get(connection, batch_id)
            if owner.id != population.id:
                raise NotFound(f"Population '{population_name}' has no batch '{batch_id}'.")
            require_sealed(batch)
            rows, spent = batch.n, services.ledger.spent(connection, batch.id)
        if rows is None or rows < 1:
            raise InvalidInput("A plan needs the number of examples: give n (1 or more), or a sealed batch.")
        return population, rows, spent

    population, rows, spent = services.database.read("plan.look", look)
    given = services.priors.latest(population)
    return preview(population, wanted, loss, rows, given, spent, carried=prior == LATEST, clipping=clipping)


def parse_options_text(options: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` of each, as options of a shape. Raises InvalidInput."""
    found: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name or name in found:
            raise InvalidInput("An option of a shape is written NAME=VALUE, each name once.")
        found[name] = value
    return found


def parse_predictor(
    *,
    method: str,
    epsilon: str | int | float,
    epsilon_cap: str | int | float,
    features: list[dict[str, Any]],
    threshold: str | int | float | None = None,
    learner: str | None = None,
    parts: int | None = None,
    regularisation: str | int | float | None = None,
    centre: str | int | float | None = None,
    bound: int | None = None,
    additional_release: bool = False,
) -> Asked:
    """What an owner asks of a predictor. Raises InvalidEpsilon; the rest is checked where the batch is known."""
    return Asked(
        method,
        Epsilon.parse(epsilon, positive=True),
        Epsilon.parse(epsilon_cap, positive=True, name="the cap"),
        features,
        threshold=threshold,
        learner=learner,
        parts=parts,
        regularisation=regularisation,
        centre=centre,
        bound=bound,
        additional_release=additional_release,
    )
