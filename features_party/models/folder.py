"""A model on disk: a folder with `model.json` (all that predicts), `card.json` (its origin) and `card.md` (the same for
people). No pickle."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.models.card_text import card_markdown
from features_party.training.model import TrainedModel
from label_dp.documents.bundle import open_file
from label_dp.documents.canonical import digest
from label_dp.errors import Conflict, InvalidFile, InvalidRequest
from label_dp.store.folders import place_folder
from label_dp.strict_json import decoded_bytes, read_json

MODEL_FILE, CARD_FILE, CARD_TEXT = "model.json", "card.json", "card.md"
CARD_FORMAT, CARD_VERSION = "label-dp-model-card", 1
MAX_BYTES = {MODEL_FILE: 1 << 28, CARD_FILE: 1 << 26}
MOST_DECODED = 1 << 30  # bytes of a file as values in memory


@dataclass(frozen=True)
class SavedModel:
    """Trained model with its card."""

    model: TrainedModel
    card: dict[str, Any]


def save_model(folder: Path, model: TrainedModel, card: dict[str, Any]) -> dict[str, Any]:
    """Write the files to a temporary folder beside `folder` and rename; returns the card as written.

    An empty folder is replaced; anything else there is a Conflict. Raises InvalidFile if it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"'{folder}' exists and is not empty; choose another --out or remove it.")
    data = json.dumps(model.as_json(), ensure_ascii=False, allow_nan=False).encode()
    whole = {"format": CARD_FORMAT, "version": CARD_VERSION, "model_sha256": digest(data), **card}
    _refuse_large(data, folder / MODEL_FILE, MODEL_FILE)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        (temporary / MODEL_FILE).write_bytes(data)
        text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
        (temporary / CARD_FILE).write_text(text + "\n", encoding="utf-8")
        (temporary / CARD_TEXT).write_text(card_markdown(whole), encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        place_folder(temporary, folder)
    except OSError as error:
        raise InvalidFile(f"The model cannot be written to '{folder}' ({error.strerror}).") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return whole


def load_model(folder: Path) -> SavedModel:
    """Read and check a model folder. Raises InvalidFile for a missing, damaged or newer one."""
    card_bytes, data = _read(folder, CARD_FILE), _read(folder, MODEL_FILE)
    card = _parse(card_bytes, CARD_FILE)
    if card.get("format") != CARD_FORMAT or type(card.get("version")) is not int:
        raise InvalidFile(f"'{folder / CARD_FILE}' is not the card of a model.")
    if card["version"] > CARD_VERSION:
        raise InvalidFile("The model was written by a newer version of this software; upgrade it to read it.")
    if digest(data) != card.get("model_sha256"):
        raise InvalidFile(f"'{folder / MODEL_FILE}' does not match its card: it was changed or cut short.")
    return SavedModel(TrainedModel.from_json(_parse(data, MODEL_FILE)), card)


def _read(folder: Path, name: str) -> bytes:
    path, most = folder / name, MAX_BYTES[name]
    try:
        with open_file(path) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidFile(f"'{path}' cannot be read ({error.strerror}); a model folder holds both files.") from None
    _refuse_large(data, path, name)
    return data


def _refuse_large(data: bytes, path: Path, name: str) -> None:
    """Refuse a file before anything is built of it. Raises InvalidFile."""
    if len(data) > MAX_BYTES[name] or decoded_bytes(data) > MOST_DECODED:
        raise InvalidFile(
            f"'{path}' is too large to be part of a model, which has at most {MAX_BYTES[name] >> 20} MiB and takes at "
            f"most {MOST_DECODED >> 20} MiB of memory once it is read."
        )


def _parse(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = read_json(data)
    except InvalidRequest:
        value = None
    if not isinstance(value, dict):
        raise InvalidFile(f"The model's '{name}' is not a JSON object; the folder is damaged.")
    return value
