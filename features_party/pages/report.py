"""The report about a model: its card with pictures, as one page to keep, print or send."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from features_party.models.card_reading import reading_card
from features_party.models.folder import SavedModel
from features_party.pages.models import described
from shared.pages.report import render, write


def model_report(saved: SavedModel, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Raises InvalidFile for a card without the parts that every training writes, InvalidInput for `out`."""
    with reading_card():
        card = saved.card
        page = render(
            "features_party.pages",
            "model_report",
            title=f"Model of {card['label']}",
            made=dt.datetime.now(dt.UTC).date().isoformat(),
            by="by the features party, from the card of the model. Errors are estimated from privatized labels alone.",
            **described(card),
        )
    write(out, page, force)
    return {"report": str(out), "label": card["label"], "model_sha256": card["model_sha256"]}
