"""Plan: what an ε would give, as a curve, and in one sentence which to take."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from markupsafe import Markup

from labels_party.bootstrap import Services
from labels_party.kinds.message.preview import outline
from labels_party.pages.context import Auditor, services
from labels_party.planning import planned
from shared.errors import InvalidInput, LabelDPError
from shared.pages.pictures import Curve, curves
from shared.pages.site import page_router
from shared.privacy import Epsilon
from shared.schemas.plan import Plan

router = page_router()
AROUND = ("0.125", "0.25", "0.5", "1", "2", "4", "8")
ERROR = "expected_model_error"
Text = Annotated[str, Query(max_length=200)]


@router.get("/plan")
def plan(visit: Auditor, population: Text = "", epsilon: Text = "1", n: Text = "") -> Response:
    ctx = services(visit)
    known = ctx.database.read("page.plan", ctx.populations.list)
    chosen = population or (known[0].name if len(known) == 1 else "")
    shown: dict[str, Any] = {"found": None, "wrong": None}
    if chosen and n:
        try:
            shown = _planned(visit, chosen, epsilon.strip(), n.strip())
        except LabelDPError as error:
            shown["wrong"] = str(error)
    asked = {"population": chosen, "epsilon": epsilon, "n": n}
    return visit.page("plan", populations=[(p.name, p.name) for p in known], asked=asked, **shown)


def _planned(visit: Any, population: str, epsilon: str, n: str) -> dict[str, Any]:
    ctx = services(visit)
    if not (n.isascii() and n.isdigit() and 0 < len(n) < 13):
        raise InvalidInput("The number of examples is a whole number, such as 100000.")
    rows = int(n)
    found = planned(ctx, population, Plan(epsilon=[epsilon], n=rows))
    advice = found["recommendations"][0]
    best = next(
        (m for m in found["mechanisms"] if (m["mechanism"], m["options"]) == (advice["mechanism"], advice["options"])),
        None,
    )
    picture = Markup("")
    if best is not None and ERROR in best:
        picture = _curve(ctx, population, rows, float(Epsilon.parse(epsilon).nano) / 1e9, best[ERROR])
    return {"found": found, "advice": advice, "best": best, "picture": picture, "wrong": None}


def _curve(ctx: Services, population: str, rows: int, epsilon: float, chosen: float) -> Markup:
    """What each ε gives at least, and what was recommended at the one asked for."""
    of = ctx.database.read("page.plan", lambda c: ctx.populations.get(c, population))
    least = outline(of, [Epsilon.parse(text) for text in AROUND], rows, ctx.priors.latest(of))
    if not least:
        return Markup("")
    at = [each.nano / 1e9 for each in least]
    root = [value**0.5 for value in least.values()]
    drawn = [
        Curve("at most, at other ε", at, root),
        Curve("recommended, at the ε asked for", [epsilon], [chosen**0.5], dots=True),
    ]
    told = "The more ε, the smaller the error that the noise adds: " + "; ".join(
        f"ε {each:g} adds at most {value:.3g}" for each, value in zip(at, root, strict=True)
    )
    across, up = "ε of a release, per example", "error that noise adds"
    return curves("Error against ε", told, across, up, drawn, log=True, mark=epsilon)
