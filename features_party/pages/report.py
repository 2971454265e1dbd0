"""Report about a model: its card with pictures, as one page to keep, print or send."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from features_party.models.card_reading import reading_card
from features_party.models.folder import SavedModel
from features_party.pages.models import described
from label_dp.pages.report import render, write


def model_page(saved: SavedModel, remark: str = "") -> str:
    """Render the report. `remark`: a sentence about the model, such as why it was kept. Raises InvalidFile for an
    incomplete card."""
    with reading_card():
        return render(
            "features_party.pages",
            "model_report",
            title=f"Model of {saved.card['label']}",
            made=dt.datetime.now(dt.UTC).date().isoformat(),
            by="by the features party, from the card of the model. Errors are estimated from privatized labels alone.",
            said=remark,
            **described(saved.card),
        )


def model_report(saved: SavedModel, out: Path, *, force: bool = False, remark: str = "") -> dict[str, Any]:
    """Write `model_page`. Raises as that, and InvalidInput for `out`."""
    write(out, model_page(saved, remark), force)
    return {"report": str(out), "label": saved.card["label"], "model_sha256": saved.card["model_sha256"]}
