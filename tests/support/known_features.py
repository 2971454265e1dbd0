"""What schemathesis is told of a running features party: a table, a message and models that exist."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.api_fuzz import Known
from tests.support.calibrations import signed
from tests.support.features_api import Api, message_files
from tests.support.messages import Sender

CURSOR = "a cursor is opaque; any other text is refused"
FILE = "a file, table or message that fits the schema need not be readable"
ASK = "POST /v1/models/{model}/ask-calibration"
OTHER_SERVICE = ("POST /v1/messages", "POST /v1/answers", "POST /v1/feature-tables/{table}/id-list", ASK)
COMPARE = "DELETE of a model matches the path as well: no model has the name 'compare'"


def known_features(api: Api, sender: Sender, folder: Path) -> Known:
    """Makes two tables, accepts a message and an answer, and trains two models."""
    api.accept(message_files(sender, folder / "sent"))
    answer = json.loads(signed(sender.key, np.array([1.0]), []))
    api.trainer.post("/v1/answers", json=answer).raise_for_status()
    tables = [api.table(), api.table()]
    models = [api.trained(tables[0]), api.trained(tables[0])]
    trainings = [row["id"] for row in api.trainer.get("/v1/trainings").json()]
    listings = {f"GET /v1/{name}": CURSOR for name in ("feature-tables", "messages", "answers", "trainings", "models")}
    refusing = listings | {
        "POST /v1/feature-tables": FILE,
        "POST /v1/messages": FILE,
        "POST /v1/answers": "the envelope must be signed with a pinned key",
        "POST /v1/trainings": "columns to exclude and hyperparameters must fit the table",
        "POST /v1/models/{model}/predict": "rows must have the columns of the model",
        "POST /v1/models/{model}/calibrations": "the envelope must be signed with a pinned key",
        ASK: "ε must be a positive decimal of at most nine places, and the shape one of a single score",
        "GET /v1/models/compare": "models must be two at least, and comparable",
        "GET /v1/models/{model}/export": "not every model has every format",
    }
    return Known(
        objects={
            "path.table": list(tables),
            "path.release": ["rel_1"],
            "path.answer": ["ans_1"],
            "path.training": trainings,
            "path.model": models,
            "query.model": models,
            "body.feature_table": list(tables),
            "body.messages[*]": ["rel_1"],
        },
        refusing=refusing,
        unreachable=OTHER_SERVICE,
        unchecked={("GET /v1/models/compare", "allow_header_conformance"): COMPARE},
    )
