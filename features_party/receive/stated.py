"""A labels party's statement of its charges, held against ours: before an item is accounted for.

It states with every item what each example of the batch has spent by then. Where the items that we hold add up to more,
it has charged less than it released, or tells its receivers different things; such an item is refused, and that it came
is on record. The rules are those of `label_dp.audit.received_rules`; a pinned key is a labels party of its own, with
those that hand-overs lead to.
"""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit.events import CHARGES, DOCUMENT_REFUSED, KEY_HANDED_OVER, NO_CHARGE, Event
from label_dp.audit.hand_overs import families
from label_dp.audit.receipts import signed_digest
from label_dp.audit.received_rules import ReceivedRules
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.store import PAGE, AuditStore
from label_dp.errors import Contradicted


def contradiction(audit: AuditStore, connection: Connection, event: Event) -> Contradicted | None:
    """Why the acceptance `event` does not go with what was accepted before; it is on record then, and nothing else."""
    rules = ReceivedRules()
    try:
        for earlier in _needed(audit, connection, event):
            (rules.hand_over if earlier.kind == KEY_HANDED_OVER else rules.add)(earlier)
        rules.add(event)
    except RuleBroken as broken:
        _record(audit, connection, event, broken)
        return Contradicted(
            f"Together with what was accepted before, '{event.subject.work}' breaks rule {broken.rule.number}: "
            f"{broken.rule.sentence} Nothing of it is kept; ask the labels party what it has charged."
        )
    return None


def _needed(audit: AuditStore, connection: Connection, event: Event) -> list[Event]:
    """All acceptances of the batch where they could add up to too much; else one of it and one of the population."""
    t, subject = audit.table, event.subject
    batch, population = str(subject.batch), str(subject.population)
    sums = [sa.func.coalesce(sa.func.sum(amount), 0) for amount in (t.c.epsilon_nano, t.c.delta_atto)]
    row = connection.execute(sa.select(*sums).where(t.c.batch == batch, t.c.kind.in_(CHARGES))).one()
    nano, atto = event.account.spent.nano, event.account.spent_delta.atto
    # no sum over fewer items is larger, and those that state less than this one are as they were
    fits = int(row[0]) + event.split.total.nano <= nano and int(row[1]) + event.split.delta_atto <= atto
    same = set(families(connection, audit).relatives(str(event.details["key_id"])))
    events = _of_keys(audit, connection, same, first=fits, batch=batch)
    events += _of_keys(audit, connection, same, first=True, population=population)
    events += audit.events(connection, kind=KEY_HANDED_OVER)
    return [e for _, e in sorted({e.sequence: e for e in events}.items())]


def _of_keys(audit: AuditStore, connection: Connection, keys: set[str], *, first: bool, **columns: str) -> list[Event]:
    """Acceptances from the labels party of `keys`, in order; another one may use the same ids."""
    events: list[Event] = []
    for kind in sorted(CHARGES):
        after, limit = 0, 1 if first else PAGE
        while page := audit.events(connection, after=after, limit=limit, kind=kind, **columns):
            events += [e for e in page if e.details.get("key_id") in keys]
            if first and events:
                return events
            after, limit = page[-1].sequence, PAGE
    return events


def _record(audit: AuditStore, connection: Connection, event: Event, broken: RuleBroken) -> None:
    """Evidence of what was signed, once for each document."""
    details = {name: event.details[name] for name in ("answer", "key_id") if name in event.details}
    details |= {"refused": signed_digest(event), "rule": broken.rule.number, "epsilon": event.split.as_json()}
    details |= {name: value for name, value in event.details.items() if name.endswith(("_spent", "_lifetime"))}
    earlier = audit.events(connection, kind=DOCUMENT_REFUSED, work=str(event.subject.work))
    if all(dict(e.details) != details for e in earlier):
        audit.append(connection, replace(event, kind=DOCUMENT_REFUSED, split=NO_CHARGE, details=details))
