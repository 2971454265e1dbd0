"""`releases` and `batches`: what left, to whom, and what there is; `answers` is beside its kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from label_dp.cli.commands import command
from label_dp.cli.layout import number
from label_dp.cli.numbers import whole
from label_dp.cli.output import emit, say, table
from label_dp.cli.panels import OFFICER, Panel
from label_dp.cli.party_commands import Json
from labels_party.cli.app import app, services

if TYPE_CHECKING:
    from label_dp.schemas.filters import BatchFilter, GivenFilter

Most = Annotated[int, typer.Option("--limit", parser=whole("--limit", 1), metavar="INTEGER", help="At most this many.")]


# heads of what `given_row` gives
GIVEN = ("population", "batch", "ε", "state", "published", "audiences", "asked for by")


@command(app, panel=OFFICER)
def releases(
    asked: Annotated[GivenFilter, Panel(without=("batch", "kind"))], limit: Most = 1000, as_json: Json = False
) -> None:
    """Every release, oldest first: of which batch, for whom, at which ε, who asked, approved and acknowledged it."""
    from labels_party.work.kind import RELEASES

    found = everything_given(RELEASES, limit, asked)

    def human() -> None:
        if not found:
            say("No release fits: privatize, or the release of a sealed batch, gives one.")
            return
        rows = [[r["id"], *given_row(r), who(r, "approved_by"), fetched(r), acknowledged(r)] for r in found]
        table("Releases", ["release", *GIVEN, "approved by", "last fetched", "acknowledged"], rows)

    emit(found, as_json, human)


@command(app, panel=OFFICER)
def batches(asked: BatchFilter, limit: Most = 1000, as_json: Json = False) -> None:
    """Every batch, oldest first: state, examples, ε spent and left, what left it, and when its labels are deleted."""
    from labels_party.work.batch_listing import listed

    party = services(existing=True)
    found = in_pages(
        limit, lambda page: party.database.read("batch.list", lambda c: listed(c, party.batches, asked, page))
    )

    def human() -> None:
        if not found:
            say("No batch fits.")
            return
        rows = [
            [
                *(str(b[name] or "") for name in ("id", "population_name", "state")),
                b["created"][:10],
                "" if b["examples"] is None else number(b["examples"]),
                *(b["epsilon_spent"], b["epsilon_left"], str(b["releases"]), str(b["answers"])),
                (b["purged"] or "")[:10] or (b["purge_due"] and f"due {b['purge_due']}") or "",
            ]
            for b in found
        ]
        heads = ["batch", "population", "state", "opened", "examples", "ε spent", "ε left", "releases", "answers"]
        table("Batches", [*heads, "labels deleted"], rows)

    emit(found, as_json, human)


def everything_given(family: Any, limit: int, asked: GivenFilter) -> list[dict[str, Any]]:
    """Rows of `labels_party.work.holdings`, at most `limit`. Raises NotFound, InvalidInput."""
    from labels_party.work.holdings import list_holdings

    party = services(existing=True)
    return in_pages(
        limit,
        lambda page: party.database.read("given.list", lambda c: list_holdings(c, party.work, asked, page, family)),
    )


def in_pages(limit: int, look: Any) -> list[dict[str, Any]]:
    """Rows of a listing, page after page."""
    from label_dp.store.paging import MOST, Page

    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(rows) < limit:
        page = look(Page(min(MOST, limit - len(rows)), cursor))
        rows, cursor = rows + page.rows, page.cursor
        if cursor is None:
            break
    return rows


def given_row(row: dict[str, Any]) -> list[str]:
    """What the tables of releases and of answers both show."""
    told = (row["population_name"], row["batch"], row["epsilon"], row["outcome"], row["published"] or "")
    return [*told, ", ".join(row["audiences"]), who(row, "requested_by")]


def who(row: dict[str, Any], member: str) -> str:
    """The name of who did it, or what stands in its place."""
    return str(row[f"{member}_name"] or row[member] or "")


def acknowledged(row: dict[str, Any]) -> str:
    """List audiences and days of the receipts of a row."""
    return ", ".join(f"{r['audience']} {r['day']}" for r in row["receipts"])


def fetched(row: dict[str, Any]) -> str:
    """The last day on which each audience fetched it."""
    last: dict[str, str] = {}
    for f in row["fetched"]:
        last[f["audience"]] = max(last.get(f["audience"], ""), f["last"])
    return ", ".join(f"{audience} {day}" for audience, day in last.items())
