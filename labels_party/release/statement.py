"""The release statement at the labels party: from the published manifest, with what the audit store recorded since."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import Connection

from labels_party.release.priors import read_prior
from labels_party.release.releases import ReleaseFile, Releases
from shared.audit import events
from shared.audit.events import Event
from shared.audit.show import counted
from shared.message.bundle import check_bytes, trusted_manifest
from shared.message.signing import VerifyingKey
from shared.message.statement import Later, render_statement


class Statements:
    """`folder` holds the published files; `key` is our own public key."""

    def __init__(self, releases: Releases, folder: Path, key: VerifyingKey) -> None:
        self.releases, self.folder, self.key = releases, folder, key

    def page(self, release_id: str, *, since: bool) -> str:
        """The HTML page of a published release; `since` adds what happened later, which is not for its audience.

        Raises NotFound, Conflict (not published), VerificationFailed or InvalidFile (a file was changed or is lost).
        """

        def look(connection: Connection) -> tuple[list[ReleaseFile], Later | None]:
            files = self.releases.files(connection, release_id)
            return files, self._later(connection, release_id) if since else None

        files, later = self.releases.database.read("statement.look", look)
        manifest, digest = trusted_manifest((self.folder / files[0].path).read_bytes(), self.key, None)
        prior = None
        entry = manifest.prior_file
        if entry is not None:
            path = self.folder / next(f.path for f in files if f.name == entry.name)
            check_bytes(path, entry)
            prior = read_prior(path, manifest.read_domain())
        return render_statement(manifest, digest, prior, later)

    def _later(self, connection: Connection, release_id: str) -> Later:
        audit = self.releases.ledger.audit
        (published,) = audit.events(connection, release=release_id, kind=events.PUBLISHED)
        since = audit.events(connection, after=published.sequence, batch=str(published.subject.batch))
        last = audit.last(connection)
        facts = [(e.time[:10], told) for e in since if (told := _told(e, published))]
        return Later(f"the audit store of the labels party as of its event {last}", facts)


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
        return f"A further release of this batch, {event.subject.release}, was charged ε {event.split.total} on top."
    if event.kind == events.RETURNED:
        return f"The charge ε {event.split.total} of release {event.subject.release} was returned: nothing was drawn."
    if event.kind == events.PUBLISHED:
        return f"Release {event.subject.release} of this batch was published for {', '.join(event.audiences)}."
    return ""
