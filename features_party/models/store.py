"""The service's models: folders, found by id, cached in memory once used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.models.card import summary
from features_party.models.folder import SavedModel, load_model
from features_party.storage import tables
from features_party.storage.file_store import FileStore
from label_dp.errors import NotFound
from label_dp.store.database import Database
from label_dp.store.paging import Listing, Page, select_page

KEPT = 8  # models in memory
TRAINED_BY = tables.models.c.training == tables.trainings.c.id


@dataclass(frozen=True)
class Models:
    """Stored models, the latest ones loaded."""

    database: Database
    place: FileStore
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

    def list(self, page: Page, training: str | None = None) -> Listing[dict[str, Any]]:
        """List models by the time they were made, with the name of their training."""
        t = tables.models
        query = sa.select(t, tables.trainings.c.name).outerjoin_from(t, tables.trainings, TRAINED_BY)
        if training is not None:
            query = query.where(t.c.training == training)
        return self.database.read("model.list", lambda c: select_page(c, query, t.c.created, t.c.id, page))

    def open(self, model_id: str) -> SavedModel:
        """Open the model and its card. Raises NotFound, or InvalidFile if its folder is damaged."""
        query = sa.select(tables.models.c.id).where(tables.models.c.id == model_id)
        # read each time: another process may have deleted it
        if self.database.read("model.open", lambda c: c.execute(query).scalar()) is None:
            with self._lock:
                self._loaded.pop(model_id, None)
            raise NotFound(f"There is no model '{model_id}'.")
        with self._lock:
            if model_id in self._loaded:
                self._loaded.move_to_end(model_id)
                return self._loaded[model_id]
        saved = load_model(self.place.path(model_id))
        with self._lock:
            self._loaded[model_id] = saved
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
        return saved

    def named(self, name: str) -> SavedModel:
        """Open a model by its folder, which takes precedence, or by its id here. Raises NotFound, InvalidFile."""
        folder = Path(name)
        return load_model(folder) if folder.is_dir() else self.open(name)

    def delete(self, model_id: str) -> None:
        """Delete a model and its folder. Its training and the audit store still record that it was made.

        Raises NotFound.
        """
        statement = sa.delete(tables.models).where(tables.models.c.id == model_id)
        if self.database.write("model.delete", lambda c: c.execute(statement).rowcount) == 0:
            raise NotFound(f"There is no model '{model_id}'.")
        with self._lock:
            self._loaded.pop(model_id, None)
        self.drop(model_id)  # unreferenced now: `sweep` removes whatever remains
