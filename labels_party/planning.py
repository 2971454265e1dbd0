"""Plans of a population, from public and already private facts: the work behind `plan`, at any door."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection

from label_dp.errors import InvalidInput, InvalidPrior, NotFound
from label_dp.privacy import ZERO, Epsilon
from label_dp.schemas.plan import Plan
from label_dp.schemas.replies import PlanOut
from labels_party.bootstrap import Services
from labels_party.labels.batches import require_sealed
from labels_party.ledger.people import PeopleAccount
from labels_party.ledger.populations import Population
from labels_party.message.clipping import parse_clipping
from labels_party.message.plan import GivenPrior
from labels_party.message.preview import preview
from labels_party.message.request import LATEST

MOST_EPSILONS = 16


@dataclass(frozen=True, eq=False)
class Question:
    """A plan that is asked for, with all that its answer depends on: public and already private facts."""

    population: Population
    epsilons: tuple[Epsilon, ...]
    rows: int
    given: GivenPrior | None
    spent: Epsilon
    asked: Plan
    people: PeopleAccount | None = None

    def answer(self) -> PlanOut:
        """Raises InvalidInput and its kinds."""
        return preview(
            self.population,
            list(self.epsilons),
            self.asked.loss,
            self.rows,
            self.given,
            self.spent,
            prior=self.asked.prior,
            clipping=parse_clipping(self.asked.clip_quantile, self.asked.clip_epsilon),
            assumed=self.asked.assume_rate,
            people=self.people,
            codes=self.asked.codes,
        )


def _epsilons(asked: Plan) -> tuple[Epsilon, ...]:
    """Raises InvalidInput and its kinds, for what else is asked too."""
    epsilons = tuple(Epsilon.parse(epsilon, positive=True) for epsilon in asked.epsilon)
    if not 1 <= len(epsilons) <= MOST_EPSILONS:
        raise InvalidInput(f"A plan is made for 1 to {MOST_EPSILONS} values of ε.")
    parse_clipping(asked.clip_quantile, asked.clip_epsilon)
    if asked.prior not in (None, "estimate", LATEST):
        raise InvalidPrior("A plan's prior is 'estimate' or 'latest'.")
    return epsilons


def undeclared(population: Population, asked: Plan) -> Question:
    """As `question`, of a population that is not stored, so under a uniform prior."""
    if asked.n is None or asked.batch is not None or asked.prior == LATEST:
        raise InvalidInput("A plan of a domain alone needs `n`, and has neither a batch nor a latest prior.")
    return Question(population, _epsilons(asked), asked.n, None, ZERO, asked)


def question(services: Services, name: str, asked: Plan) -> Question:
    """Raises InvalidInput and its kinds, NotFound."""
    epsilons = _epsilons(asked)

    def look(connection: Connection) -> tuple[Population, int, Epsilon, PeopleAccount | None]:
        population = services.populations.get(connection, name)
        rows, spent = asked.n, ZERO
        if asked.batch is not None:
            batch, owner = services.batches.get(connection, asked.batch)
            if owner.id != population.id:
                raise NotFound(f"Population '{name}' has no batch '{asked.batch}'.")
            require_sealed(batch)
            rows, spent = batch.n, services.ledger.spent(connection, batch.id)
        if rows is None or rows < 1:
            raise InvalidInput("A plan needs the number of examples: give n (1 or more), or a sealed batch.")
        return population, rows, spent, services.ledger.people.account(connection, population, asked.batch)

    population, rows, spent, people = services.database.read("plan.look", look)
    return Question(population, epsilons, rows, services.priors.latest(population), spent, asked, people)


def planned(services: Services, name: str, asked: Plan) -> PlanOut:
    """What each mechanism would give at each ε, under the newest published prior of the population or a uniform one;
    with `prior` "latest" that prior also takes the place of an estimated one, as it would in a release. With
    `clip_quantile` each ε also pays for clipping bounds, which are put where that prior would have them. Of a domain of
    two values it also says what can be learnt, at the rates of `assume_rate`.

    Raises InvalidInput and its kinds, NotFound."""
    return question(services, name, asked).answer()
