"""Release statements at the labels party: the published manifest, and later events of the audit store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy.engine import Connection

from label_dp.actors import called
from label_dp.audit import events
from label_dp.audit.events import Event
from label_dp.audit.show import counted
from label_dp.documents.bundle import check_bytes
from label_dp.documents.manifest import Manifest, MechanismChoice
from label_dp.documents.signing import VerifyingKey
from label_dp.documents.statement import Later, render_statement
from label_dp.store.apikeys import names_of
from labels_party.message.priors import read_prior
from labels_party.storage.tables import api_keys
from labels_party.work.kind import RELEASES, WorkFile
from labels_party.work.store import Works


class Statements:
    """Statements of releases. `key` returns our own public key for an envelope."""

    def __init__(self, works: Works, key: Callable[[bytes], VerifyingKey]) -> None:
        self.works, self.key = works, key

    def page(self, release_id: str, *, since: bool) -> str:
        """Render the HTML page of a published release; `since` adds later events, which are not for its audience.

        Raises NotFound, Conflict (not published), VerificationFailed or InvalidFile (a file was changed or is lost).
        """

        def look(connection: Connection) -> tuple[list[WorkFile], Later | None]:
            self.works.get(connection, release_id, RELEASES)
            files = self.works.files(connection, release_id)
            return files, self._later(connection, release_id) if since else None

        files, later = self.works.database.read("statement.look", look)
        manifest, digest = Manifest.trusted(envelope := self.works.read(files[0]), self.key(envelope), None)
        prior = None
        entry = manifest.prior_file
        if entry is not None:
            path = self.works.shelf.local(next(f for f in files if f.name == entry.name))
            check_bytes(path, entry)
            prior = read_prior(path, manifest.domain)
        return render_statement(manifest, digest, prior, later)

    def mechanism(self, release_id: str) -> MechanismChoice:
        """Return the mechanism of a published release, and why `auto` chose it. Raises as `page`."""
        files = self.works.database.read("statement.files", lambda c: self.works.files(c, release_id))
        envelope = self.works.read(files[0])
        return Manifest.trusted(envelope, self.key(envelope), None)[0].mechanism

    def _later(self, connection: Connection, release_id: str) -> Later:
        audit = self.works.ledger.audit
        (published,) = audit.events(connection, work=release_id, kind=events.PUBLISHED)
        names = names_of(connection, api_keys)
        since = audit.events(connection, after=published.sequence, batch=str(published.subject.batch))
        last = audit.last(connection)
        facts = [(e.time[:10], f"{fact} By {called(e.actor, names)}.") for e in since if (fact := _told(e, published))]
        receipts = audit.events(connection, work=release_id, kind=events.RECEIVED)
        text = "{} acknowledged this release with its signed receipt {}."
        facts += [(e.time[:10], text.format(", ".join(e.audiences), e.details["position"])) for e in receipts]
        facts += self._people(connection, str(published.subject.population))
        facts = [(published.time[:10], self._who(connection, release_id, names)), *sorted(facts, key=lambda f: f[0])]
        return Later(f"the audit store of the labels party as of its event {last}", facts)

    def _people(self, connection: Connection, population: str) -> list[tuple[str, str]]:
        """What one person has spent over all label columns, where the population is of a body of people."""
        ledger = self.works.ledger
        people = self.works.batches.populations.get(connection, population).people
        if people is None:
            return []
        budget = ledger.people.report(connection, people)
        of = f"{budget['epsilon_spent_at_most']} of its lifetime ε {budget['epsilon_lifetime']}"
        sentence = f"Over all {len(budget['populations'])} label columns of the people '{people}' one"
        return [(ledger.audit.now()[:10], f"{sentence} {budget['person']} has spent at most {of}.")]

    def _who(self, connection: Connection, release_id: str, names: Mapping[str, str]) -> str:
        release = self.works.get(connection, release_id, RELEASES)
        approved = f", and approved by {called(release.approved_by, names)}" if release.approved_by else ""
        return f"Asked for by {called(release.requested_by, names)}{approved}."


def _told(event: Event, published: Event) -> str:
    audiences = ", ".join(published.audiences)
    if event.kind == events.ERASED:
        return (
            f"Erased, {counted(event.details['examples'], 'example')} of this batch: the labels were deleted from what "
            f"the labels party stores; later releases use the missing-label value. This release went to {audiences} "
            "before and cannot be recalled; what it says of these examples stays bounded by its ε."
        )
    if event.kind == events.BATCH_PURGED:
        return "The labels of this batch were deleted from what the labels party stores. This release stays as it is."
    if event.kind == events.CHARGED:
        return f"A further release of this batch, {event.subject.work}, was charged ε {event.split.total} on top."
    if event.kind == events.RETURNED:
        return f"The charge ε {event.split.total} of release {event.subject.work} was returned: nothing was drawn."
    if event.kind == events.PUBLISHED:
        return f"Release {event.subject.work} of this batch was published for {', '.join(event.audiences)}."
    return ""
