"""Releases and answers by audience, for the owner and the auditor, in any state.

Rows come from requests and public facts, never from labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.actors import with_names
from label_dp.errors import InvalidInput
from label_dp.schemas.filters import GivenFilter
from label_dp.schemas.replies import GivenOut
from label_dp.store.apikeys import PREFIX, names_of
from label_dp.store.paging import Listing, Page, select_page
from labels_party.labels.batch_uses import FAILED
from labels_party.storage.tables import api_keys, audit_events, batches, fetches, populations, receipts
from labels_party.storage.tables import work as t
from labels_party.work.decisions import Cancelled, Declined
from labels_party.work.kind import Family
from labels_party.work.store import Works

DAY = 10  # characters of a timestamp's day
ENDED_BY = {Declined.code: "declined", Cancelled.code: "cancelled"}
Of = dict[str, list[dict[str, Any]]]  # rows by work
SAME = {"batch": t.c.batch, "state": t.c.state}  # members of a filter that compare one column
COLUMNS = ("id", "batch", "kind", "state", "epsilon", "audiences", "sha256", "requested_by", "approved_by", "approved")


def within(when: Any, since: date | None, until: date | None) -> list[sa.ColumnElement[bool]]:
    """Return conditions: the day of column `when` is between `since` and `until`, inclusive."""
    day = sa.func.substr(when, 1, DAY)
    first, last = since and since.isoformat(), until and until.isoformat()
    return [*([day >= first] if first is not None else []), *([day <= last] if last is not None else [])]


def names(column: Any, audience: str) -> sa.ColumnElement[bool]:
    """Return the condition that a JSON list of texts contains `audience`."""
    text = sa.cast(column, sa.Text)
    return sa.func.replace(text, json.dumps(audience), "") != text  # LIKE knows no case on SQLite


def outcome(state: str, problem: Mapping[str, Any] | None) -> str:
    """Return the state for people: declined and cancelled work did not fail."""
    return ENDED_BY.get((problem or {}).get("code", ""), state)


def list_holdings(
    connection: Connection,
    works: Works,
    wanted: GivenFilter,
    page: Page | None = None,
    family: Family | None = None,
    among: Sequence[str] | None = None,
) -> Listing[GivenOut]:
    """List releases and answers in order of creation, with ε, requester, approver, day of publication, fetches and
    receipts.

    `wanted.audience` selects what the audience may read or has accepted; failed work then needs `wanted.state`.
    `among` selects batches. `page` None: the first thousand. Raises NotFound (population), InvalidInput (no such kind,
    a malformed cursor).
    """
    kinds = {k.name: k for k in works.kinds.values() if family is None or k.family is family}
    if wanted.kind not in (None, *kinds):
        noun = "work" if family is None else f"{family.noun}s"
        raise InvalidInput(f"There is no kind '{wanted.kind}' of {noun}; there are {', '.join(sorted(kinds))}.")
    b, p = batches.c, populations.c
    beside = (b.n.label("examples"), b.purged, p.id.label("population"), p.name.label("population_name"), p.label)
    query: sa.Select[Any] = (
        sa.select(*(t.c[name] for name in COLUMNS), t.c.problem, t.c.created, t.c.published, *beside)
        .join(batches, b.id == t.c.batch)
        .join(populations, p.id == b.population)
        .where(t.c.kind.in_(sorted(kinds) if wanted.kind is None else [wanted.kind]))
        .where(*within(sa.func.coalesce(t.c.published, t.c.created), wanted.since, wanted.until))
    )
    same = {name: getattr(wanted, name) for name in SAME}
    query = query.where(*(SAME[name] == value for name, value in same.items() if value is not None))
    if among is not None:
        query = query.where(t.c.batch.in_(among))
    if wanted.population is not None:
        query = query.where(p.id == works.batches.populations.get(connection, wanted.population).id)
    if wanted.audience is not None:
        accepted = sa.select(receipts.c.work).where(receipts.c.audience == wanted.audience)
        query = query.where(names(t.c.audiences, wanted.audience) | t.c.id.in_(accepted))
        query = query if wanted.state is not None else query.where(t.c.state != FAILED)
    listing = select_page(connection, query, t.c.created, t.c.id, page or Page())
    ids = [row["id"] for row in listing.rows]
    receipts_of, actor_names = _receipts(connection, ids, wanted.audience), names_of(connection, api_keys)
    fetched = _fetched(connection, ids, wanted.audience, actor_names)
    return Listing(
        [with_names(_told(row, works, receipts_of, fetched), actor_names) for row in listing.rows], listing.cursor
    )


def _told(row: dict[str, Any], works: Works, receipts_of: Of, fetched: Of) -> GivenOut:
    family = works.kinds[row["kind"]].family
    epsilon, digest = row.pop("epsilon"), row.pop("sha256")
    members = row | {
        "outcome": outcome(row["state"], row.pop("problem")),
        "family": family.noun,
        "epsilon": epsilon["total"],
        "delta": epsilon["delta"],
        family.digest: digest,
        "published": row["published"] and row["published"][:DAY],
        "receipts": receipts_of.get(row["id"], []),
        "fetched": fetched.get(row["id"], []),
    }
    return cast("GivenOut", members)


def _receipts(connection: Connection, works: list[str], audience: str | None) -> Of:
    """Return receipts by work: audience, day, position, key and digest."""
    r, e = receipts.c, audit_events.c
    query = (
        sa.select(r.work, r.audience, r.position, r.key_id, r.digest, sa.func.substr(e.at, 1, DAY).label("day"))
        .join(audit_events, e.sequence == r.event)
        .where(r.work.in_(works))
        .order_by(r.work, r.audience, r.position)
    )
    rows: Of = {}
    for row in connection.execute(query if audience is None else query.where(r.audience == audience)):
        rows.setdefault(row.work, []).append({name: row._mapping[name] for name in row._fields if name != "work"})
    return rows


def _fetched(connection: Connection, works: list[str], audience: str | None, key_names: Mapping[str, str]) -> Of:
    """Return fetches by work: audience, key, first and last day."""
    f = fetches.c
    query = sa.select(fetches).where(f.work.in_(works)).order_by(f.work, f.audience, f.first, f.key)
    rows: Of = {}
    for row in connection.execute(query if audience is None else query.where(f.audience == audience)):
        days = {"audience": row.audience, "first": row.first, "last": row.last}
        rows.setdefault(row.work, []).append(days | {"key": row.key, "key_name": key_names.get(f"{PREFIX}{row.key}")})
    return rows
