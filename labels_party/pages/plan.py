"""Plan: what an ε would give, as a curve, and in one sentence which to take."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from markupsafe import Markup

from labels_party.bootstrap import Services
from labels_party.pages.context import Auditor, router, services
from labels_party.planning import planned
from shared.errors import InvalidInput, LabelDPError
from shared.pages.pictures import Curve, curves
from shared.privacy import Epsilon
from shared.schemas.plan import Plan

router = router()
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
    """The least expected model error at each ε. Linear programs are left out, which take seconds: the curve is what an
    ε gives at least."""
    around = planned(ctx, population, Plan(epsilon=list(AROUND), n=rows), quick=True)
    least: dict[float, float] = {}
    for row in around["mechanisms"]:
        at = float(row["epsilon"]["total"])
        least[at] = min(row[ERROR], least.get(at, float("inf")))
    drawn = [
        Curve("at most, at other ε", list(least), [value**0.5 for value in least.values()]),
        Curve("recommended, at the ε asked for", [epsilon], [chosen**0.5], dots=True),
    ]
    told = "The more ε, the smaller the error that the noise adds: " + "; ".join(
        f"ε {at:g} adds at most {value**0.5:.3g}" for at, value in least.items()
    )
    across, up = "ε of a release, per example", "error added to a model's"
    return curves("Error against ε", told, across, up, drawn, log=True, mark=epsilon)
