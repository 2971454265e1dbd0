"""Models for other stacks: XGBoost's own format with its encoding as JSON, or the whole pipeline as one ONNX file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

from features_party.models.card_reading import reading_card
from features_party.models.card_text import card_markdown
from features_party.models.encoding_guide import encoding_guide
from features_party.models.folder import CARD_FILE, CARD_TEXT, SavedModel
from features_party.training.learners.class_trees import ClassTrees
from features_party.training.learners.trees import Trees
from label_dp.errors import InvalidInput
from label_dp.installing import pip_install

BOOSTER_FILE, ENCODING_FILE = "booster.json", "encoding.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same model gives the same bytes


def as_xgboost(saved: SavedModel) -> bytes:
    """A zip: `booster.json` for `xgboost.Booster(model_file=…)`, `encoding.json`, and the card.

    Raises InvalidInput for a model without trees, of several boosters, and for a calibrated one.
    """
    body = saved.model.body
    if saved.model.calibration is not None:
        raise InvalidInput(
            "A calibrated model has a map behind its predictions, which XGBoost's format does not hold; export it with "
            "format onnx, or export the model it was made from and apply the signed map to its predictions."
        )
    boosters = (body.booster,) if isinstance(body, Trees) else body.boosters if isinstance(body, ClassTrees) else ()
    if not boosters:
        raise InvalidInput(
            "This model has no trees alone, which is what XGBoost's format holds; export it with format onnx, or train "
            "model trees."
        )
    if len(boosters) > 1:
        raise InvalidInput(
            "This model averages several boosters, and XGBoost's format holds one; export it with format onnx, or "
            "train model trees."
        )
    files = {
        BOOSTER_FILE: bytes(boosters[0].save_raw("json")),
        ENCODING_FILE: _json(encoding_guide(saved.model)),
        CARD_FILE: _json(saved.card),
        CARD_TEXT: card_markdown(saved.card).encode(),
    }
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, data)
    return sink.getvalue()


def as_onnx(saved: SavedModel) -> bytes:
    """An ONNX file from raw columns to predictions inside the domain, through the map of a calibrated model.

    Raises InvalidInput where `onnx` is missing.
    """
    try:
        from features_party.models.onnx_graph import onnx_model
    except ModuleNotFoundError:
        raise InvalidInput(f"ONNX export needs the package onnx: {pip_install('onnx')}.") from None
    return onnx_model(saved)


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1).encode()


# by name: how it is made, its media type, the end of its file name
FORMATS: dict[str, tuple[Callable[[SavedModel], bytes], str, str]] = {
    "xgboost": (as_xgboost, "application/zip", ".xgboost.zip"),
    "onnx": (as_onnx, "application/vnd.onnx", ".onnx"),
}


@reading_card()
def export(saved: SavedModel, form: str) -> bytes:
    """The bytes of one of FORMATS. Raises InvalidInput; InvalidFile for a damaged card."""
    if form not in FORMATS:
        raise InvalidInput(f"There is no export format '{form}'; choose one of {', '.join(FORMATS)}.")
    return FORMATS[form][0](saved)
