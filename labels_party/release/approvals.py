"""Four-eyes: a release waits, uncharged, until somebody else than who asked for it decides; and cancelling.

A waiting release holds no budget: whether the charge fits is judged again when it is approved, in the transaction that
charges. What this protects against is one person (or one stolen API key) releasing alone through the service. It does
not protect against somebody with a shell on the labels party's machine, who could read the labels themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import IGNORABLE, Population
from labels_party.labels.batches import require_sealed, timestamp
from labels_party.labels.standing import CHARGED, FAILED
from labels_party.notify.outbox import RELEASE_FAILED
from labels_party.release.plan import Plan
from labels_party.release.releases import ACCEPTED, Release, Releases, charge_details
from labels_party.storage.idempotency import NO_KEY, Answer, IdempotentCall
from labels_party.storage.tables import api_keys, releases
from shared.audit import events
from shared.errors import Conflict, InvalidInput, LabelDPError, Refusal, SecondPersonNeeded, Unauthenticated
from shared.problems import problem

COMMAND_LINE = "command line"
MAX_NAME, MAX_REASON = 40, 500


class ReleaseDeclined(Refusal):
    """Why a release is `failed`: a second person declined it. Nothing was charged."""

    code = "release-declined"
    title = "Release declined"


class ReleaseCancelled(Refusal):
    """Why a release is `failed`: it was taken back before any draw began; what was charged is returned."""

    code = "release-cancelled"
    title = "Release cancelled"


def person(name: str) -> str:
    """The actor behind a name given on the command line. Raises InvalidInput."""
    if not 1 <= len(name) <= MAX_NAME or name != name.strip() or not name.isprintable() or IGNORABLE.search(name):
        raise InvalidInput(
            f"A person's name is 1 to {MAX_NAME} visible, printable characters without outer or double spaces."
        )
    return f"{COMMAND_LINE}: {name}"


class Approvals:
    def __init__(self, releases_: Releases) -> None:
        self.releases, self.ledger, self.database = releases_, releases_.ledger, releases_.database
        self.clock = releases_.batches.clock

    def approve(self, release_id: str, actor: str, call: IdempotentCall = NO_KEY) -> Answer:
        """Charge a waiting release, which is then drawn as any other. Returns (200, the release).

        Raises SecondPersonNeeded (who asked for it approves), BudgetExceeded (it goes on waiting), Conflict (it does
        not wait, or its labels were purged).
        """

        def effect(connection: Connection, release: Release, population: Population) -> None:
            batch, _ = self.releases.population_of(connection, release)
            require_sealed(batch)
            plan = Plan.from_json(release.plan)
            subject = (population, release.batch, release.id)
            approved = {"requested_by": release.requested_by}
            self.ledger.note(connection, events.APPROVED, *subject, actor, approved)
            details = charge_details(plan, bool(release.plan.get("additional_release")))
            self.ledger.charge(connection, *subject, plan.split, actor, details)
            self._set(connection, release, state=CHARGED, approved_by=actor, approved=timestamp(self.clock()))

        return self._decide("release.approve", release_id, actor, call, effect)

    def decline(self, release_id: str, actor: str, reason: str = "", call: IdempotentCall = NO_KEY) -> Answer:
        """End a waiting release without a charge; `reason` goes to the audit store. Raises as `approve` does."""
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise InvalidInput(f"A reason is one line of at most {MAX_REASON} printable characters.")

        def effect(connection: Connection, release: Release, population: Population) -> None:
            details = {"requested_by": release.requested_by, "reason": reason}
            self.ledger.note(connection, events.DECLINED, population, release.batch, release.id, actor, details)
            self._end(
                connection, release, ReleaseDeclined("A second person declined this release; nothing was charged.")
            )

        return self._decide("release.decline", release_id, actor, call, effect)

    def cancel(self, release_id: str, actor: str, call: IdempotentCall = NO_KEY) -> Answer:
        """Take a release back while certainly no draw of it ever began; its charge is returned. Raises Conflict.

        That no attempt was leased is seen in the transaction that returns the charge, and writers take turns.
        """

        def store(connection: Connection) -> Answer:
            def effect() -> Answer:
                release = self.releases.get(connection, release_id)
                _, population = self.releases.population_of(connection, release)
                if release.state not in (ACCEPTED, CHARGED) or release.attempt != 0:
                    raise Conflict(
                        f"Release '{release_id}' is {release.state} and a draw of it may have begun, so its charge "
                        "stands. Only a release of which no draw ever began can be cancelled."
                    )
                self._standing(connection, actor)
                subject = (population, release.batch, release_id)
                self.ledger.note(connection, events.CANCELLED, *subject, actor, {"state": release.state})
                if release.state == CHARGED:
                    self.ledger.give_back(connection, *subject, Plan.from_json(release.plan).split, actor)
                self._end(
                    connection, release, ReleaseCancelled("This release was cancelled before any draw of it began.")
                )
                return 200, self._described(connection, release_id, population)

            return call.once(connection, effect)

        return self.database.write("release.cancel", store)

    # --- parts --------------------------------------------------------------------------------------------

    def _decide(
        self,
        name: str,
        release_id: str,
        actor: str,
        call: IdempotentCall,
        effect: Callable[[Connection, Release, Population], None],
    ) -> Answer:
        def store(connection: Connection) -> Answer:
            def decided() -> Answer:
                release = self.releases.get(connection, release_id)
                _, population = self.releases.population_of(connection, release)
                if release.state != ACCEPTED:
                    why = (release.problem or {}).get("detail", "")
                    raise Conflict(
                        f"Release '{release_id}' is {release.state}; it does not wait for an approval. {why}".strip()
                    )
                if release.requested_by is None or release.requested_by.casefold() == actor.casefold():
                    raise SecondPersonNeeded(
                        f"You asked for release '{release_id}' yourself; somebody else, with another API key or under "
                        "another name, approves or declines it. (You can cancel it.)"
                    )
                self._standing(connection, actor)
                effect(connection, release, population)
                return 200, self._described(connection, release_id, population)

            return call.once(connection, decided)

        return self.database.write(name, store)

    @staticmethod
    def _standing(connection: Connection, actor: str) -> None:
        """An API key that was revoked since the call came in decides nothing. Raises Unauthenticated."""
        kind, _, key_id = actor.partition(":")
        if kind == "apikey":
            t = api_keys
            query = sa.select(t.c.id).where(t.c.id == key_id, t.c.revoked.is_(None))
            if connection.execute(query).first() is None:
                raise Unauthenticated("This API key was revoked.", "revoked", key_id)

    def _end(self, connection: Connection, release: Release, why: LabelDPError) -> None:
        self._set(connection, release, state=FAILED, problem=problem(why)[1])
        self.releases.tell(connection, RELEASE_FAILED, release.id)

    @staticmethod
    def _set(connection: Connection, release: Release, **values: Any) -> None:
        t = releases
        seen = (t.c.id == release.id, t.c.state == release.state, t.c.attempt == release.attempt)
        if connection.execute(sa.update(t).where(*seen).values(**values)).rowcount != 1:
            raise Conflict(f"Release '{release.id}' changed meanwhile; look at it again.")

    def _described(self, connection: Connection, release_id: str, population: Population) -> dict[str, Any]:
        return self.releases.describe(connection, self.releases.get(connection, release_id), population)
