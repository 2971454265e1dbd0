"""The service's models: folders in the home, found by id, kept in memory once used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from features_party.registry.folder import SavedModel, load_model
from features_party.storage import tables
from features_party.storage.home import Home
from shared.errors import NotFound
from shared.service.database import Database

KEPT = 8  # models in memory


@dataclass(frozen=True)
class Models:
    database: Database
    home: Home
    _loaded: OrderedDict[str, SavedModel] = field(default_factory=OrderedDict, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def folder(self, model_id: str) -> Path:
        return self.home.models / model_id

    def record(self, connection: Connection, model_id: str, training: str, card: dict[str, Any]) -> None:
        """Make a saved model known, in the caller's transaction."""
        connection.execute(
            sa.insert(tables.models).values(
                id=model_id,
                training=training,
                kind=card["kind"],
                loss=card["loss"],
                releases=[m["release"] for m in card["messages"]],
                rows=card["report"]["rows"],
                created=card["created"],
            )
        )

    def list(self) -> list[dict[str, Any]]:
        t = tables.models
        query = sa.select(t).order_by(t.c.created, t.c.id)
        rows = self.database.read("model.list", lambda c: c.execute(query).all())
        return [dict(row._mapping) for row in rows]

    def open(self, model_id: str) -> SavedModel:
        """The model and its card. Raises NotFound, or InvalidFile where its folder is damaged."""
        with self._lock:
            if model_id in self._loaded:
                self._loaded.move_to_end(model_id)
                return self._loaded[model_id]
        query = sa.select(tables.models.c.id).where(tables.models.c.id == model_id)
        if self.database.read("model.open", lambda c: c.execute(query).scalar()) is None:
            raise NotFound(f"There is no model '{model_id}'.")
        saved = load_model(self.folder(model_id))
        with self._lock:
            self._loaded[model_id] = saved
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
        return saved
