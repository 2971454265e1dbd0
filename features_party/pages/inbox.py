"""Inbox: accepted documents, their senders, and their ε; what an answer says; feature tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from fastapi import Response
from sqlalchemy.engine import Connection

from features_party.pages.context import Cursor, Reader, newest, services
from features_party.receive.acceptances import ANSWER, MESSAGE
from features_party.storage.tables import audit_events, received
from label_dp.audit.events import KEY_HANDED_OVER, Event
from label_dp.audit.hand_overs import hand_overs
from label_dp.cli.answers import answer_rows
from label_dp.documents.hand_over import KeyFamilies
from label_dp.documents.registry import KINDS
from label_dp.pages.groupings import SignedResult, groupings
from label_dp.pages.site import page_router
from label_dp.privacy import Epsilon

router = page_router()


@router.get("/inbox")
def inbox(visit: Reader, cursor: Cursor = None, answers: Cursor = None) -> Response:
    """Show accepted messages and answers, and ε received."""
    ctx = services(visit)
    return visit.page(
        "inbox",
        received=ctx.database.read("page.inbox", _by_population),
        messages=ctx.acceptances.page(MESSAGE, newest(cursor)),
        answers=ctx.acceptances.page(ANSWER, newest(answers)),
        keys=ctx.pinned.listed(),
        names=ctx.pinned.names(),
    )


@router.get("/answers/{name}")
def answer(name: str, visit: Reader) -> Response:
    """Show an accepted answer."""
    signed_answer = services(visit).answers.open(name)
    answer, facts = signed_answer.answer, signed_answer.answer.mechanism.facts
    return visit.page(
        "answer",
        answer=answer,
        summary=signed_answer.summary(),
        rows=answer_rows(answer.parameters, KINDS[answer.kind].shown(answer), facts),
        groupings=groupings(SignedResult(signed_answer.digest, answer)),
    )


@router.get("/messages/{name}")
def message(name: str, visit: Reader) -> Response:
    """Show an accepted message, by its release or its digest."""
    ctx = services(visit)
    return visit.page("message", message=ctx.messages.open(name).summary(), names=ctx.pinned.names())


@router.get("/tables/{name}")
def table(name: str, visit: Reader) -> Response:
    """Show a feature table."""
    return visit.page("table", table=services(visit).feature_tables.get(name))


@router.get("/tables")
def tables(visit: Reader, cursor: Cursor = None) -> Response:
    """List the feature tables."""
    return visit.page("tables", found=services(visit).feature_tables.list(newest(cursor)))


def _by_population(connection: Connection) -> list[dict[str, Any]]:
    """Return ε per example of each population of each labels party: the largest sum over one batch, since batches are
    disjoint in examples."""
    e, r = audit_events.c, received.c
    query = (
        sa.select(r.key_id, r.population, r.population_name, r.batch, sa.func.sum(e.epsilon_nano), sa.func.count())
        .join(audit_events, e.sequence == r.event)
        .group_by(r.key_id, r.population, r.population_name, r.batch)
    )
    handed = sa.select(e.body).where(e.kind == KEY_HANDED_OVER).order_by(e.sequence)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    keys = KeyFamilies(hand_overs(map(Event.from_body, connection.execute(handed).scalars())))
    totals: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for key_id, population, name, batch, nano, count in connection.execute(query):
        of = (keys.of(key_id), population, name, batch)
        before = totals.get(of, (0, 0))
        totals[of] = before[0] + int(nano), before[1] + int(count)
    for (key_id, population, name, _), (nano, count) in totals.items():
        row = rows.setdefault(
            (key_id, population), {"name": name, "key_id": key_id, "nano": 0, "batches": 0, "count": 0}
        )
        row["nano"] = max(row["nano"], nano)
        row["batches"] += 1
        row["count"] += count
    return [row | {"epsilon": str(Epsilon(row["nano"]))} for row in sorted(rows.values(), key=lambda r: r["name"])]
