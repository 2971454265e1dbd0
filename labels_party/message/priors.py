"""Priors of our own published releases, for which ε was already paid (invariant charge-first)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from label_dp.audit import events
from label_dp.columnar.tables import read_table, require_columns
from label_dp.domain import Domain
from label_dp.errors import InvalidPrior, InvalidRows, InvalidTable, NotFound
from label_dp.label_values import value_positions
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.labels.parsing import classes_of, floats_of
from labels_party.ledger.populations import Population
from labels_party.message.plan import CARRIED, ESTIMATED, GivenPrior
from labels_party.storage.tables import audit_events, work_files
from labels_party.work.kind import RELEASES, Work, WorkFile
from labels_party.work.store import Works


class PublishedPriors:
    """Priors of published releases."""

    def __init__(self, works: Works) -> None:
        self.works, self.database = works, works.database

    def of(self, population: Population, release_id: str) -> GivenPrior:
        """Return the prior of a published release with the same domain and all these audiences. Raises InvalidPrior."""

        def look(connection: Connection) -> tuple[Population, WorkFile | None, str]:
            release = self.works.get(connection, release_id, RELEASES)
            if release.plan.get("clip_quantiles"):
                raise InvalidPrior(
                    f"The prior of release '{release_id}' is over the range between the clipping bounds that it bought "
                    "and says nothing outside of them; take that of a release without bought bounds, or estimate one."
                )
            _, owner = self.works.about(connection, release)
            return owner, self._file(connection, release), self._paid_by(connection, release)[0]

        try:
            owner, file, paid_by = self.database.read("prior.look", look)
        except NotFound:
            raise InvalidPrior(f"There is no release '{release_id}' to take a prior from.") from None
        if file is None or owner.domain != population.domain:
            raise InvalidPrior("A prior is carried over from a published release over the same domain that has one.")
        check_audiences(population, owner.audiences)
        return GivenPrior(read_prior(self.works.shelf.local(file), population.domain), paid_by)

    def latest(self, population: Population) -> GivenPrior | None:
        """Return the newest published prior of the population that was estimated or carried over, else None."""

        def look(connection: Connection) -> tuple[WorkFile, str] | None:
            # a population that was declared again has the stored one's name, not its id
            stored = self.works.batches.populations.find(connection, population.name)
            if stored is None or stored.domain != population.domain:
                return None
            t, f = audit_events, work_files
            # in the order of the audit store: a clock may be set back
            query = (
                sa.select(t.c.work)
                .join(f, (f.c.work == t.c.work) & (f.c.role == "prior"))  # most releases of a year may have none
                .where(t.c.kind == events.PUBLISHED, t.c.population == stored.id)
                .order_by(t.c.sequence.desc())
            )
            for (release_id,) in connection.execute(query).all():
                release = self.works.get(connection, release_id, RELEASES)
                paid_by, source = self._paid_by(connection, release)
                whole = source == ESTIMATED and not release.plan.get("clip_quantiles")  # over the whole domain
                file = self._file(connection, release) if whole else None
                if file is not None:
                    return file, paid_by
            return None

        prior_file = self.database.read("prior.latest", look)
        if prior_file is None:
            return None
        return GivenPrior(read_prior(self.works.shelf.local(prior_file[0]), population.domain), prior_file[1])

    def _file(self, connection: Connection, release: Work) -> WorkFile | None:
        if release.state != PUBLISHED:
            return None
        return next((f for f in self.works.listed_files(connection, release.id) if f.role == "prior"), None)

    def _paid_by(self, connection: Connection, release: Work) -> tuple[str, str]:
        """Return (id, prior's source) of the release that starts a chain of carried-over priors."""
        chain = {release.id}
        while release.plan["prior"] == CARRIED:
            earlier = str(release.plan["carried_from"])
            if earlier in chain:
                break
            try:
                release = self.works.get(connection, earlier, RELEASES)
            except NotFound:  # taken from a message file of another home with our key
                return earlier, CARRIED
            chain.add(earlier)
        return release.id, str(release.plan["prior"])


def check_audiences(population: Population, earlier: Collection[str]) -> None:
    """Refuse a prior that not all audiences may see: it is sent with the message. Raises InvalidPrior."""
    if not set(population.audiences) <= set(earlier):
        raise InvalidPrior(
            "The release of that prior was not for every audience of this population, who would get it with the "
            "message; estimate one, or take the prior of a release that all of them received."
        )


def read_prior(path: Path, domain: Domain) -> npt.NDArray[np.float64]:
    """Read a prior float64[k] from a file of one row per label: `label`, `probability`. Raises InvalidPrior."""
    table = read_table(path, text_columns=["label"] if domain.names else (), columns=["label", "probability"])
    require_columns(table.column_names, ["label", "probability"], str(path))
    try:
        probabilities = floats_of(table["probability"], "probability")
        places = _places(table["label"], domain)
    except (InvalidRows, InvalidTable):
        what = "names of the domain" if domain.names else "numbers"
        raise InvalidPrior(f"In '{path}' the column 'label' must hold {what} and 'probability' numbers.") from None
    if not np.array_equal(places, np.arange(domain.k)):
        raise InvalidPrior(f"'{path}' must have exactly one row per value of the domain, in its order.")
    return probabilities


def _places(column: Any, domain: Domain) -> npt.NDArray[np.int64]:
    """Return positions int64[n]; −1 if not in the domain. Our own prior files give classes by number, files by hand by
    name. Raises InvalidRows, InvalidTable."""
    import pyarrow as pa

    if domain.names and not pa.types.is_floating(column.type):
        return classes_of(column, domain)
    return value_positions(column, floats_of(column), domain)
