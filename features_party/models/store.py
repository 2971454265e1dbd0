"""The service's models: folders, found by id, cached in memory once used."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.models.card import summary
from features_party.models.folder import SavedModel, load_model
from features_party.models.signature import Signers
from features_party.storage import tables
from features_party.storage.file_store import FileStore
from label_dp.documents.signing import SigningKey
from label_dp.errors import InvalidInput, NotFound
from label_dp.store.database import Database
from label_dp.store.paging import Listing, Page, select_page

KEPT = 8  # models in memory
ALIAS = re.compile(r"(?!m_|compare$)[a-z0-9][a-z0-9._-]{0,39}")  # no id, and no call beside models
a = tables.model_aliases.c
TRAINED_BY = tables.models.c.training == tables.trainings.c.id


@dataclass(frozen=True)
class Models:
    """Stored models, the latest ones loaded."""

    database: Database
    place: FileStore
    key: Callable[[], SigningKey]
    signers: Signers
    _loaded: OrderedDict[str, SavedModel] = field(default_factory=OrderedDict, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def folder(self, model_id: str) -> Path:
        """Return the folder for a model under construction; `keep` follows."""
        return self.place.draft(model_id)

    def keep(self, model_id: str) -> None:
        """Move a saved model to its final folder, before `record`. Raises Unavailable."""
        self.place.keep(model_id)

    def drop(self, model_id: str) -> None:
        """Remove the remains of an unrecorded model, as far as possible now."""
        self.place.drop(model_id)

    def record(self, connection: Connection, model_id: str, training: str, card: dict[str, Any]) -> None:
        """Record a saved model, in the caller's transaction."""
        connection.execute(
            sa.insert(tables.models).values(
                id=model_id,
                training=training,
                kind=card["kind"],
                loss=card["loss"],
                releases=[m["release"] for m in card["messages"]],
                rows=card["report"]["rows"],
                created=card["created"],
                calibration=(card["calibration"] or {}).get("answer"),
                summary=summary(card),
            )
        )

    def has(self, connection: Connection, model_id: str) -> bool:
        query = sa.select(tables.models.c.id).where(tables.models.c.id == model_id)
        return connection.execute(query).scalar() is not None

    def sweep(self) -> int:
        """Remove models that were kept over a day ago and never recorded."""
        query = sa.select(tables.models.c.id)
        named = partial(self.database.read, "model.sweep", lambda c: set(c.execute(query).scalars()))
        return self.place.sweep(named)

    def known(self, model_id: str) -> bool:
        return self.database.read("model.known", lambda c: self.has(c, model_id))

    def training_of(self, connection: Connection, model_id: str) -> str:
        """Return the training of a model. Raises NotFound."""
        query = sa.select(tables.models.c.training).where(tables.models.c.id == model_id)
        training_id = connection.execute(query).scalar()
        if training_id is None:
            raise NotFound(f"There is no model '{model_id}'.")
        return str(training_id)

    @staticmethod
    def _aliases(connection: Connection, ids: list[str]) -> dict[str, list[str]]:
        aliases: dict[str, list[str]] = {model_id: [] for model_id in ids}
        for row in connection.execute(sa.select(a.alias, a.model).where(a.model.in_(ids)).order_by(a.alias)):
            aliases[row.model].append(row.alias)
        return aliases

    def aliases(self, model_id: str) -> list[str]:
        """Return the aliases of a model."""
        return self.database.read("model.aliases", lambda c: self._aliases(c, [model_id]))[model_id]

    def list(self, page: Page, training: str | None = None) -> Listing[dict[str, Any]]:
        """List models by the time they were made, with the name of their training."""
        t = tables.models
        query = sa.select(t, tables.trainings.c.name).outerjoin_from(t, tables.trainings, TRAINED_BY)
        if training is not None:
            query = query.where(t.c.training == training)

        def work(connection: Connection) -> Listing[dict[str, Any]]:
            listing = select_page(connection, query, t.c.created, t.c.id, page)
            aliases = self._aliases(connection, [row["id"] for row in listing.rows])
            return Listing([row | {"aliases": aliases[row["id"]]} for row in listing.rows], listing.cursor)

        return self.database.read("model.list", work)

    def id_of(self, name: str) -> str:
        """Return the id of a model, given that or an alias. Raises NotFound."""
        return self.database.read("model.name", lambda c: self._id_of(c, name))

    @staticmethod
    def _id_of(connection: Connection, name: str) -> str:
        aliased = sa.select(a.model).where(a.alias == name).scalar_subquery()
        query = sa.select(tables.models.c.id).where(tables.models.c.id.in_([name, aliased]))
        model_id = connection.execute(query).scalar()
        if model_id is None:
            raise NotFound(f"There is no model '{name}'.")
        return str(model_id)

    def set_alias(self, name: str, alias: str) -> str:
        """Give a model an alias, which another model may have had, and return its id. Raises InvalidInput, NotFound."""
        if ALIAS.fullmatch(alias) is None:
            raise InvalidInput(
                "An alias has 1 to 40 small letters, digits, dots, dashes or underscores, such as champion. It does "
                "not begin with m_, as ids do, and is not compare, which is a call."
            )

        def work(connection: Connection) -> str:
            model_id = self._id_of(connection, name)
            connection.execute(sa.delete(tables.model_aliases).where(a.alias == alias))
            connection.execute(sa.insert(tables.model_aliases).values(alias=alias, model=model_id))
            return model_id

        return self.database.write("model.alias", work)

    def remove_alias(self, name: str, alias: str) -> None:
        """Take an alias from a model. Raises NotFound."""

        def work(connection: Connection) -> bool:
            own = (a.alias == alias) & (a.model == self._id_of(connection, name))
            return connection.execute(sa.delete(tables.model_aliases).where(own)).rowcount > 0

        if not self.database.write("model.unalias", work):
            raise NotFound(f"Model '{name}' has no alias '{alias}'.")

    def open(self, name: str) -> SavedModel:
        """Open a model, by its id or an alias, and its card. Raises as `resolve`."""
        return self.resolve(name)[1]

    def resolve(self, name: str) -> tuple[str, SavedModel]:
        """Return the id of a model, given that or an alias, and the model with its card. Raises NotFound, or
        InvalidFile if its folder is damaged."""
        try:
            model_id = self.id_of(name)  # read each time: another process may have deleted it
        except NotFound:
            with self._lock:
                self._loaded.pop(name, None)
            raise
        with self._lock:
            if model_id in self._loaded:
                self._loaded.move_to_end(model_id)
                return model_id, self._loaded[model_id]
        saved = load_model(self.place.path(model_id), self.signers)
        with self._lock:
            self._loaded[model_id] = saved
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
        return model_id, saved

    def named(self, name: str) -> SavedModel:
        """Open a model by its folder, which takes precedence, or by its id or alias here. Raises NotFound,
        InvalidFile."""
        folder = Path(name)
        return load_model(folder, self.signers) if folder.is_dir() else self.open(name)

    def delete(self, model_id: str) -> None:
        """Delete a model, its aliases and its folder. Its training and the audit store still record that it was made.

        Raises NotFound.
        """

        def work(connection: Connection) -> int:
            connection.execute(sa.delete(tables.model_aliases).where(a.model == model_id))
            return connection.execute(sa.delete(tables.models).where(tables.models.c.id == model_id)).rowcount

        if self.database.write("model.delete", work) == 0:
            raise NotFound(f"There is no model '{model_id}'.")
        with self._lock:
            self._loaded.pop(model_id, None)
        self.drop(model_id)  # unreferenced now: `sweep` removes whatever remains
