"""Plan: what an ε would give, as a curve, and in one sentence which to take."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from markupsafe import Markup

from label_dp.errors import InvalidInput, LabelDPError
from label_dp.pages.pictures import Curve, curves
from label_dp.pages.site import page_router
from label_dp.privacy import Epsilon
from label_dp.schemas.plan import Plan
from labels_party.bootstrap import Services
from labels_party.kinds.message.preview import outline
from labels_party.pages.context import Auditor, services
from labels_party.planning import planned

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
            shown = _planned(ctx, chosen, epsilon.strip(), n.strip())
        except LabelDPError as error:
            shown["wrong"] = str(error)
    asked = {"population": chosen, "epsilon": epsilon, "n": n}
    return visit.page("plan", populations=[(p.name, p.name) for p in known], asked=asked, **shown)


def _planned(ctx: Services, population: str, epsilon: str, n: str) -> dict[str, Any]:
    if not (n.isascii() and n.isdigit() and 0 < len(n) < 13):
        raise InvalidInput("The number of examples is a whole number, such as 100000.")
    return described(ctx, population, Plan(epsilon=[epsilon], n=int(n))) | {"wrong": None}


def described(ctx: Services, population: str, asked: Plan) -> dict[str, Any]:
    """The plan as `plan_parts.html.jinja` shows it: for each ε what to take, and all of it as one curve. Raises as
    `planned`."""
    found = planned(ctx, population, asked)
    options = []
    for advice in found["recommendations"]:
        mechanisms = [m for m in found["mechanisms"] if m["epsilon"]["total"] == advice["epsilon"]]
        taken = (advice["mechanism"], advice["options"])
        best = next((m for m in mechanisms if (m["mechanism"], m["options"]) == taken), None)
        options.append({"advice": advice, "best": best, "mechanisms": mechanisms})
    chosen = {o["advice"]["epsilon"]: o["best"][ERROR] for o in options if o["best"] is not None and ERROR in o["best"]}
    return {"found": found, "options": options, "picture": _curve(ctx, population, found["n"], chosen)}


def _curve(ctx: Services, population: str, rows: int, chosen: dict[str, float]) -> Markup:
    """What each ε gives at least, and what was recommended at those asked for."""
    of = ctx.database.read("page.plan", lambda c: ctx.populations.get(c, population))
    least = outline(of, [Epsilon.parse(text) for text in AROUND], rows, ctx.priors.latest(of)) if chosen else {}
    if not least:
        return Markup("")
    at = [each.nano / 1e9 for each in least]
    root = [value**0.5 for value in least.values()]
    asked = [Epsilon.parse(text).nano / 1e9 for text in chosen]
    drawn = [
        Curve("at most, at other ε", at, root),
        Curve("recommended, at the ε asked for", asked, [value**0.5 for value in chosen.values()], dots=True),
    ]
    told = "The more ε, the smaller the error that the noise adds: " + "; ".join(
        f"ε {each:g} adds at most {value:.3g}" for each, value in zip(at, root, strict=True)
    )
    across, up = "ε of a release, per example", "error that noise adds"
    mark = asked[0] if len(asked) == 1 else None
    return curves("Error against ε", told, across, up, drawn, log=True, mark=mark)
