"""dbt, of a publisher: a Python model, models/labelled.py, that gives the model `features` its privatized labels."""

from __future__ import annotations

import os
from typing import Any


def model(dbt: Any, session: Any) -> Any:
    """Verify and account for the messages, and return the rows of `features` that have a label."""
    dbt.config(materialized="table", packages=["label-dp-service[features]"])
    from features_party import accept

    message = os.environ.get("MESSAGE", "messages/today.parquet")
    source = accept(message, key=os.environ.get("LABELS_KEY"))
    return source.labeled(dbt.ref("features").arrow(), id="click_id")
