"""Reports as single files: the holdings of an audience for an auditor, a plan for those who decide on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Connection

from label_dp.documents.report import signature_of
from label_dp.errors import NotFound
from label_dp.pages.report import render, write, write_signed
from label_dp.privacy import ZERO, Epsilon
from label_dp.schemas.filters import GivenFilter
from label_dp.schemas.replies import GivenOut, PlanOut
from label_dp.store.output_files import writable
from label_dp.store.paging import Page
from labels_party.bootstrap import Services
from labels_party.labels.batch_uses import PUBLISHED, WORKING
from labels_party.ledger.populations import Population
from labels_party.pages.plan import described
from labels_party.planning import Question
from labels_party.work.holdings import list_holdings
from labels_party.work.overview import summaries
from labels_party.work.store import Works

AT_ONCE = 1000
COUNTED = (PUBLISHED, *WORKING)


def report(party: Services, audience: str, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the report of an audience to `out` and its signature next to it. Raises NotFound (unknown audience),
    InvalidFile."""

    def look(connection: Connection) -> dict[str, Any]:
        events, head = party.audit.verify(connection)
        populations = party.populations.list(connection)
        rows = list(all_holdings(connection, party.work, GivenFilter(audience=audience)))
        if not rows and not any(audience in p.audiences for p in populations):
            raise NotFound(f"No population and no release names the audience '{audience}'.")
        reached = [p for p in populations if any(r["population"] == p.id for r in rows)]
        pairs = zip(reached, summaries(connection, reached), strict=True)
        return {"events": events, "head": head, "rows": rows, "totals": [_total(p, of, rows) for p, of in pairs]}

    values = party.database.read("report", look)
    made, key = party.audit.now()[:10], party.key.now()
    title = f"What {audience} has"
    page = render(
        "labels_party.pages",
        "audience_report",
        title=title,
        made=made,
        by=f"by the labels party, which signs with {key.public.id}.",
        audience=audience,
        receipts=sum(len(row["receipts"]) for row in values["rows"]),
        file=out.name,
        beside=signature_of(out).name,
        key_id=key.public.id,
        **values,
    )
    signed = {"party": "labels-party", "about": title, "made": made, "events": values["events"], "head": values["head"]}
    write_signed(out, page, key, signed, force)
    return {
        "report": str(out),
        "signature": str(signature_of(out)),
        "audience": audience,
        "given": len(values["rows"]),
        "epsilon": [{name: t[name] for name in ("name", "label", "epsilon", "per_unit")} for t in values["totals"]],
    }


def plan_report(of: Question, population: str, made: str, out: Path, *, force: bool = False) -> PlanOut:
    """Write a plan, `made` on a day, as a page; return the answer. Raises as `Question.answer`; InvalidInput for
    `out`."""
    writable(out, force)
    answer = of.answer()
    by = "by the labels party. Expected errors are a model's for ranking, not a promise."
    values = described(of, answer) | {"population": population}
    page = render("labels_party.pages", "plan_report", title="Plan", made=made, by=by, **values)
    write(out, page, force)
    return answer


def all_holdings(connection: Connection, works: Works, given_filter: GivenFilter) -> Iterator[GivenOut]:
    """Yield all rows that fit, oldest first."""
    cursor: str | None = None
    while True:
        listing = list_holdings(connection, works, given_filter, Page(AT_ONCE, cursor))
        yield from listing.rows
        cursor = listing.cursor
        if cursor is None:
            return


def _total(population: Population, summary: dict[str, Any], rows: list[GivenOut]) -> dict[str, Any]:
    """Add the audience's totals of a population to `summary`: its largest ε by batch."""
    own = sorted(
        (row for row in rows if row["population"] == population.id and row["state"] in COUNTED),
        key=lambda row: str(row["batch"]),
    )
    of_batch = [
        sum((Epsilon.parse(row["epsilon"]) for row in of), ZERO)
        for _, of in itertools.groupby(own, key=lambda row: row["batch"])
    ]
    most = max(of_batch, default=ZERO)
    return summary | {"batches": len(of_batch), "epsilon": str(most), "per_unit": population.unit.bound(most)}
