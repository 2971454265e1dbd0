"""Plan: the error at an ε as a curve, and the recommended mechanism in a sentence.

A page is served at once. It shows the error of one bit a label, which takes milliseconds, and the known answers on the
best mechanism. `foresight` computes the others in the background, and the page then loads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Query, Response
from markupsafe import Markup

from label_dp.audit.policies import policy_rules
from label_dp.documents.statement_text import in_words
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.pages.pictures import Curve, curves
from label_dp.pages.site import Visit, page_router
from label_dp.pages.sliders import Slider
from label_dp.privacy import ZERO, Epsilon
from label_dp.schemas.plan import Plan
from label_dp.schemas.replies import PlanOut
from labels_party.bootstrap import Services
from labels_party.ledger.rules import Account
from labels_party.message.preview import outline
from labels_party.pages.context import Approver, services
from labels_party.pages.foresight import Foresight
from labels_party.planning import Question, question
from labels_party.storage.tables import batches

router = page_router()
AROUND = ("0.125", "0.25", "0.5", "1", "2", "4", "8")
ERROR = "expected_model_error"
TENTHS, TWOS, HALVES = range(1, 10), range(10, 20, 2), range(20, 40, 5)
EPSILONS = Slider(
    "e", "ε per example", ("0.05", *(f"{tenth / 10:g}" for tenth in (*TENTHS, *TWOS, *HALVES)), "4", "5", "6", "7", "8")
)
SIZES = Slider("s", "Number of examples", tuple(str(m * 10**e) for e in range(3, 9) for m in (1, 2, 5)))
USUAL = ("1", "100000")  # first ε and n of the sliders; this n if no batch is sealed
KEPT_PICTURES = 64
# members of `plan_shown.html.jinja` before anything is worked out
NOTHING: dict[str, Any] = {"found": None, "picture": Markup(""), "wrong": None, "waits": False, "most": None}
NOTHING |= {"meaning": "", "cost": ""}
Points = tuple[tuple[float, ...], tuple[float, ...]]
Text = Annotated[str, Query(max_length=200)]


@router.get("/plan")
def plan(
    visit: Approver, population: Text = "", epsilon: Text = "", n: Text = "", e: Text = "", s: Text = ""
) -> Response:
    """Render a plan. `e` and `s` are slider positions; exact figures in `epsilon` and `n` have precedence."""
    ctx = services(visit)
    foresight: Foresight = visit.request.app.state.foresight
    populations = ctx.database.read("page.plan", ctx.populations.list)
    chosen = population or (populations[-1].name if populations else "")  # the newest
    of = next((p.id for p in populations if chosen in (p.name, p.id)), None)
    shown, given = dict(NOTHING), bool(n or s)
    asked = {"population": chosen, "epsilon": epsilon.strip(), "n": n.strip()}
    try:
        asked["epsilon"] = asked["epsilon"] or (EPSILONS.at(e) if e else USUAL[0])
        asked["n"] = asked["n"] or (SIZES.at(s) if s else _usual(ctx, of))
        cost = Epsilon.parse(asked["epsilon"], positive=True)
        shown["meaning"] = in_words(cost)
        accounts = ((Account(p.lifetime, ZERO), p.name) for p in populations if p.id == of)
        shown["cost"] = next((cost_of(cost, *account, most_of_one_charge(ctx)) for account in accounts), "")
        if not given:
            foresight.warm()
        elif chosen:
            shown |= foreseen(visit, chosen, Plan(epsilon=[asked["epsilon"]], n=_size(asked["n"])))
    except LabelDPError as error:
        shown["wrong"] = str(error)
    sliders = [EPSILONS.placed(asked["epsilon"]), SIZES.placed(asked["n"])]
    return visit.page(
        "plan", populations=[(p.name, p.name) for p in populations], asked=asked, sliders=sliders, given=given, **shown
    )


def most_of_one_charge(ctx: Services) -> Epsilon | None:
    """Return the policy's ceiling of one charge, if it has one."""
    nano = ctx.database.read("page.policy", lambda c: policy_rules(ctx.audit, c).ceilings.epsilon_per_release)
    return None if nano is None else Epsilon(nano)


def cost_of(epsilon: Epsilon, account: Account, population: str, most: Epsilon | None) -> str:
    """Say what a release takes of the budget of each example. `most`: the policy's ceiling of one charge."""
    if most is not None and epsilon > most:
        return f"More than ε {most}, the most that the organisation's policy allows of one charge: it would be refused."
    lifetime, before = account.lifetime, f", which has spent {account.spent} already" if account.spent.nano else ""
    if epsilon > account.left:
        return (
            f"More than an example of {population} may still spend, ε {account.left} of its lifetime {lifetime}: it "
            "would be refused."
        )
    return (
        f"ε {epsilon} of the {lifetime} that an example of {population}{before} may spend, for ever; "
        f"{account.left - epsilon} is left."
    )


def _size(n: str) -> int:
    """Raises InvalidInput."""
    if not (n.isascii() and n.isdigit() and 0 < len(n) < 13):
        raise InvalidInput("The number of examples is a whole number, such as 100000.")
    return int(n)


def _usual(ctx: Services, population: str | None) -> str:
    """Return the size of the newest sealed batch: daily batches have about the same size."""
    t = batches.c
    newest = sa.select(t.n).where(t.population == population, t.n > 0).order_by(t.sealed.desc()).limit(1)
    size = ctx.database.read("page.plan.size", lambda c: c.execute(newest).scalar())
    return USUAL[1] if size is None else str(size)


def foreseen(visit: Visit, population: str, asked: Plan) -> dict[str, object]:
    """Return the known members of a plan of one ε, and whether more follow. Raises InvalidInput and its kinds,
    NotFound."""
    foresight: Foresight = visit.request.app.state.foresight
    current = question(services(visit), population, asked)
    (epsilon,) = asked.epsilon
    result = foresight.look(current)
    others = [_at(current, each) for each in AROUND if each != epsilon]
    if result is None:
        foresight.ask(current)
    else:
        for each in reversed(others):
            foresight.ask(each)
    answers = [answer for answer in (result, *map(foresight.look, others)) if answer is not None]
    best = dict(pair for answer in answers for pair in _best(answer).items())
    epsilon_now = current.epsilons[0]
    least = foresight.least(current, _grid([epsilon, *AROUND]))
    members = {} if result is None else {"found": result, "options": _options(result)}
    return members | {
        "picture": _curve(least, best, epsilon_now.nano / 1e9),
        "most": least[epsilon_now] ** 0.5 if epsilon_now in least else None,
        "waits": result is None or any(map(foresight.awaited, others)),
    }


def _at(wanted: Question, epsilon: str) -> Question:
    asked = wanted.asked.model_copy(update={"epsilon": [epsilon]})
    return replace(wanted, epsilons=(Epsilon.parse(epsilon),), asked=asked)


def described(of: Question, found: PlanOut) -> dict[str, object]:
    """Return `found`, the answer, for `plan_parts.html.jinja`: options by ε, and a curve."""
    chosen = _best(found)
    least: dict[Epsilon, float] = {}
    if chosen:
        least = outline(of.population, _grid(AROUND), of.rows, of.given)
    mark = next(iter(chosen)).nano / 1e9 if len(chosen) == 1 else None
    return {"found": found, "options": _options(found), "picture": _curve(least, chosen, mark)}


def _options(found: PlanOut) -> list[dict[str, Any]]:
    options = []
    for advice in found["recommendations"]:
        mechanisms = [m for m in found["mechanisms"] if m["epsilon"]["total"] == advice["epsilon"]]
        advised = (advice["mechanism"], advice["options"])
        best = next((m for m in mechanisms if (m["mechanism"], m["options"]) == advised), None)
        options.append({"advice": advice, "best": best, "mechanisms": mechanisms})
    return options


def _best(found: PlanOut) -> dict[Epsilon, float]:
    """Return the expected model error of the recommendation at each ε, if there is one."""
    pairs = [(Epsilon.parse(o["advice"]["epsilon"]), o["best"]) for o in _options(found)]
    return {epsilon: best[ERROR] for epsilon, best in pairs if best is not None and ERROR in best}


def _grid(epsilons: Iterable[str]) -> list[Epsilon]:
    return sorted({Epsilon.parse(text) for text in epsilons})


def _curve(least: dict[Epsilon, float], chosen: dict[Epsilon, float], mark: float | None) -> Markup:
    """Draw the errors of one bit and of known recommendations by ε."""
    if not least:
        return Markup("")
    return _drawn(_points(least), _points(chosen), mark)


@lru_cache(KEPT_PICTURES)
def _drawn(least: Points, chosen: Points, mark: float | None) -> Markup:
    at, root = least
    lines = [Curve("one bit a label", at, root)]
    if chosen[0]:
        lines.append(Curve("what is recommended", *chosen, dots=True))
    text = "The more ε, the smaller the error that the noise adds. One bit a label: " + "; ".join(
        f"ε {each:g} adds about {value:.3g}" for each, value in zip(at, root, strict=True)
    )
    across, up = "ε of a release, per example", "error that noise adds"
    return curves("Error against ε", text, across, up, lines, log=True, mark=mark)


def _points(errors: dict[Epsilon, float]) -> Points:
    """Return each ε and the root of its squared error."""
    places = sorted(errors)
    return tuple(each.nano / 1e9 for each in places), tuple(errors[each] ** 0.5 for each in places)
