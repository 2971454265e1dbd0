"""A model on disk: a folder with `model.json` (all that predicts), `card.json` (its origin), `card.md` (the same for
people) and `model.dsse.json`, which signs the others. No pickle."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.models import signature
from features_party.models.card_text import card_markdown
from features_party.models.signature import Signers
from features_party.training.model import TrainedModel
from label_dp.documents.bundle import open_file
from label_dp.documents.canonical import digest
from label_dp.documents.model_statement import ModelStatement
from label_dp.documents.signing import SigningKey
from label_dp.errors import Conflict, InvalidFile, InvalidRequest, SignatureInvalid
from label_dp.store.folders import place_folder, write_durably
from label_dp.strict_json import decoded_bytes, read_json

MODEL_FILE, CARD_FILE, CARD_TEXT, SIGNATURE = "model.json", "card.json", "card.md", "model.dsse.json"
CARD_FORMAT, CARD_VERSION = "label-dp-model-card", 1
MAX_BYTES = {MODEL_FILE: 1 << 28, CARD_FILE: 1 << 26, CARD_TEXT: 1 << 26, SIGNATURE: ModelStatement.MOST_ENVELOPE}
MOST_DECODED = 1 << 30  # bytes of a file as values in memory


@dataclass(frozen=True)
class SavedModel:
    """Trained model with its card; once loaded also its folder, and the signer's statement where that was verified."""

    model: TrainedModel
    card: dict[str, Any]
    folder: Path | None = None
    statement: ModelStatement | None = None


def save_model(folder: Path, model: TrainedModel, card: dict[str, Any], key: SigningKey) -> dict[str, Any]:
    """Write files signed with `key` to a temporary folder beside `folder` and rename; returns the card as written.

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
        text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
        files = {MODEL_FILE: data, CARD_FILE: f"{text}\n".encode(), CARD_TEXT: card_markdown(whole).encode()}
        for name, content in (files | {SIGNATURE: signature.statement(whole, files, key.public.id).sign(key)}).items():
            (temporary / name).write_bytes(content)
        if folder.exists():
            folder.rmdir()
        place_folder(temporary, folder)
    except OSError as error:
        raise InvalidFile(f"The model cannot be written to '{folder}' ({error.strerror}).") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return whole


def sign_model(folder: Path, key: SigningKey) -> ModelStatement:
    """Sign a folder in place of whoever signed it; returns the statement. Raises InvalidFile, Unavailable."""
    files = _files(folder)
    statement = signature.statement(_opened(folder, files, None).card, files, key.public.id)
    write_durably(folder / SIGNATURE, statement.sign(key))
    return statement


def load_model(folder: Path, signers: Signers | None) -> SavedModel:
    """Read and check a model folder, nothing of which is parsed unless one of `signers` signed it; None: whoever did.

    Raises the VerificationFailed kind of a missing, strange or wrong signature, InvalidFile for a missing, damaged or
    newer folder.
    """
    files, statement = _files(folder), None
    if signers is not None:
        envelope = _read(folder, SIGNATURE) if (folder / SIGNATURE).exists() else None
        statement = signature.verify(envelope, files, signers)
    return _opened(folder, files, statement)


def _opened(folder: Path, files: dict[str, bytes], statement: ModelStatement | None) -> SavedModel:
    """Parse a folder's files, against the statement that signed them if there is one."""
    data, card = files[MODEL_FILE], _parse(files[CARD_FILE], CARD_FILE)
    if card.get("format") != CARD_FORMAT or type(card.get("version")) is not int:
        raise InvalidFile(f"'{folder / CARD_FILE}' is not the card of a model.")
    if card["version"] > CARD_VERSION:
        raise InvalidFile("The model was written by a newer version of this software; upgrade it to read it.")
    if digest(data) != card.get("model_sha256"):
        raise InvalidFile(f"'{folder / MODEL_FILE}' does not match its card: it was changed or cut short.")
    if statement is not None and statement != signature.statement(card, files, statement.key_id):
        raise SignatureInvalid("The model's signed statement says something else than its card about ε or messages.")
    return SavedModel(TrainedModel.from_json(_parse(data, MODEL_FILE)), card, folder, statement)


def _files(folder: Path) -> dict[str, bytes]:
    """Read what a signature is of."""
    return {name: _read(folder, name) for name in (CARD_FILE, MODEL_FILE, CARD_TEXT)}


def _read(folder: Path, name: str) -> bytes:
    path, most = folder / name, MAX_BYTES[name]
    try:
        with open_file(path) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidFile(
            f"'{path}' cannot be read ({error.strerror}); a model folder holds model.json, card.json and card.md."
        ) from None
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
