"""Decisions on work: approval or refusal by a second person (four-eyes), and cancellation.

Waiting work is uncharged and holds no budget: the transaction that charges it on approval checks the budget again.
This prevents one person (or one stolen API key) from releasing alone through the service. It does not protect against
somebody with a shell on the labels party's machine, who could read the labels themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp import errors
from label_dp.actors import ISSUED
from label_dp.audit import events
from label_dp.problems import problem
from label_dp.store.idempotency import NO_KEY, IdempotentCall, Reply
from labels_party.labels.batch_uses import ACCEPTED, CHARGED, FAILED
from labels_party.labels.batches import require_sealed, timestamp
from labels_party.ledger.populations import Population
from labels_party.storage.tables import work as table
from labels_party.work.attempts import noun_of
from labels_party.work.kind import Family, Work
from labels_party.work.store import Works

MAX_REASON = 500


class Declined(errors.Refusal):
    """Problem of work that a second person declined. Nothing was charged."""

    code = "release-declined"
    title = "Declined"


class Cancelled(errors.Refusal):
    """Problem of work that was cancelled before any draw began. Its charge is returned."""

    code = "release-cancelled"
    title = "Cancelled"


class Decisions:
    """Decisions on work. `stands(connection, actor)`: may this actor still act? `people`: approvals need two subjects
    of the OIDC issuer."""

    def __init__(self, works: Works, stands: Callable[[Connection, str], bool], *, people: bool = False) -> None:
        self.stands, self.people = stands, people
        self.works, self.ledger, self.database = works, works.ledger, works.database
        self.clock = works.batches.clock

    def approve(self, work_id: str, actor: str, call: IdempotentCall = NO_KEY, family: Family | None = None) -> Reply:
        """Charge waiting work, so that it will be drawn. Returns (200, the work).

        Raises NotFound (also of another `family`), SecondPersonNeeded (the requester approves), BudgetExceeded (it goes
        on waiting), Conflict (it does not wait, its requester was revoked, its labels were purged, or its features were
        replaced), Unauthenticated (the actor was revoked).
        """

        def effect(connection: Connection, work: Work, population: Population) -> None:
            batch, _ = self.works.about(connection, work)
            self._require_people(work, actor)
            require_sealed(batch)
            if not self.stands(connection, work.requested_by):
                raise errors.Conflict(
                    "The API key that asked for it does not stand any more: decline it, and ask again."
                )
            try:
                self.works.require_features(connection, work.batch, work.features)
            except errors.Unavailable:
                raise errors.Conflict(
                    "The features that it was asked for were replaced meanwhile: decline it."
                ) from None
            subject = (population, work.batch, work.id)
            self.ledger.note(connection, events.APPROVED, *subject, actor, {"requested_by": work.requested_by})
            self.ledger.charge(connection, *subject, work.split, actor, work.asked)
            self._set(connection, work, state=CHARGED, approved_by=actor, approved=timestamp(self.clock()))

        return self._decide("approve", work_id, actor, call, family, effect)

    def decline(
        self, work_id: str, actor: str, reason: str = "", call: IdempotentCall = NO_KEY, family: Family | None = None
    ) -> Reply:
        """End waiting work without a charge; `reason` goes to the audit store. Raises as `approve` does."""
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise errors.InvalidInput(f"A reason is one line of at most {MAX_REASON} printable characters.")

        def effect(connection: Connection, work: Work, population: Population) -> None:
            why = Declined(f"A second person declined this {self._noun(work)}; nothing was charged.")
            self.end(connection, work, population, actor, reason, why)

        return self._decide("decline", work_id, actor, call, family, effect)

    def end(
        self,
        connection: Connection,
        work: Work,
        population: Population,
        actor: str,
        reason: str,
        why: errors.LabelDPError,
    ) -> None:
        """End waiting work without a charge and record the event. Its inputs are swept."""
        details = {"requested_by": work.requested_by, "reason": reason}
        self.ledger.note(connection, events.DECLINED, population, work.batch, work.id, actor, details)
        self._fail(connection, work, why)

    def cancel(self, work_id: str, actor: str, call: IdempotentCall = NO_KEY, family: Family | None = None) -> Reply:
        """Cancel work of which certainly no draw ever began, and return its charge. Raises NotFound, Conflict,
        Unauthenticated (the actor was revoked).

        The transaction that returns the charge checks that no attempt was leased, and writers take turns.
        """

        def effect(connection: Connection, work: Work, population: Population) -> None:
            noun = self._noun(work)
            if work.state not in (ACCEPTED, CHARGED) or work.attempt != 0:
                raise errors.Conflict(
                    f"{noun.capitalize()} '{work_id}' is {work.state} and a draw of it may have begun, so its charge "
                    f"stands. Only work of which no draw ever began can be cancelled."
                )
            self._standing(connection, actor)
            subject = (population, work.batch, work_id)
            self.ledger.note(connection, events.CANCELLED, *subject, actor, {"state": work.state})
            if work.state == CHARGED:
                self.ledger.give_back(connection, *subject, work.split, actor)
            self._fail(connection, work, Cancelled(f"This {noun} was cancelled before any draw of it began."))

        return self._store("cancel", work_id, call, family, effect)

    # --- parts --------------------------------------------------------------------------------------------

    def _noun(self, work: Work) -> str:
        return self.works.family(work).noun

    def _decide(
        self,
        name: str,
        work_id: str,
        actor: str,
        call: IdempotentCall,
        family: Family | None,
        effect: Callable[[Connection, Work, Population], None],
    ) -> Reply:
        def decided(connection: Connection, work: Work, population: Population) -> None:
            noun = self._noun(work)
            if work.state != ACCEPTED:
                why = (work.problem or {}).get("detail", "")
                raise errors.Conflict(
                    f"{noun.capitalize()} '{work_id}' is {work.state}; it does not wait for an approval. {why}".strip()
                )
            if work.requested_by.casefold() == actor.casefold():
                raise errors.SecondPersonNeeded(
                    f"You asked for {noun} '{work_id}' yourself; somebody else approves or declines it. (You can "
                    "cancel it.)"
                )
            self._standing(connection, actor)
            effect(connection, work, population)

        return self._store(name, work_id, call, family, decided)

    def _store(
        self,
        name: str,
        work_id: str,
        call: IdempotentCall,
        family: Family | None,
        effect: Callable[[Connection, Work, Population], None],
    ) -> Reply:
        def store(connection: Connection) -> Reply:
            def decided() -> Reply:
                work = self.works.get(connection, work_id, family)
                _, population = self.works.about(connection, work)
                effect(connection, work, population)
                now = self.works.get(connection, work_id)
                if now.state == FAILED:
                    ended.append(now.inputs)
                return 200, self.works.describe(connection, now, population)

            return call.once(connection, decided)

        ended: list[str] = []
        reply = self.database.write(f"{noun_of(work_id)}.{name}", store)
        for inputs in ended:
            self.works.forget_inputs(inputs)
        return reply

    def _require_people(self, work: Work, actor: str) -> None:
        """Refuse an approval by or for anybody whom the issuer did not name, where people are asked for. Raises
        SecondPersonNeeded."""
        if self.people and not (actor.startswith(ISSUED) and work.requested_by.startswith(ISSUED)):
            raise errors.SecondPersonNeeded(
                f"This party approves between two people: who asks for {self._noun(work)} '{work.id}' and who approves "
                "it are two subjects of the OIDC issuer. An API key or a command can decline it; somebody asks again."
            )

    def _standing(self, connection: Connection, actor: str) -> None:
        """Refuse an API key that was revoked since the call came in. Raises Unauthenticated."""
        if not self.stands(connection, actor):
            raise errors.Unauthenticated("This API key was revoked.", "revoked", actor.partition(":")[2])

    def _fail(self, connection: Connection, work: Work, why: errors.LabelDPError) -> None:
        self._set(connection, work, state=FAILED, problem=problem(why)[1])
        self.works.tell(connection, self.works.family(work).told_failed, work.id)

    @staticmethod
    def _set(connection: Connection, work: Work, **values: Any) -> None:
        t = table
        unchanged = (t.c.id == work.id, t.c.state == work.state, t.c.attempt == work.attempt)
        if connection.execute(sa.update(t).where(*unchanged).values(**values)).rowcount != 1:
            raise errors.Conflict(f"'{work.id}' changed meanwhile; look at it again.")
