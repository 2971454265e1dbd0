"""Signature of a model's folder: whose key vouches for it is decided before any of its files is parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features_party.models.card_reading import reading_card
from label_dp.documents.canonical import digest
from label_dp.documents.model_statement import ModelEpsilon, ModelSource, ModelStatement
from label_dp.documents.signing import VerifyingKey, named_key
from label_dp.errors import SignatureInvalid
from label_dp.privacy import Delta, Epsilon, EpsilonSplit

Signers = Sequence[VerifyingKey]  # whose models are loaded; our own key first


@reading_card()
def statement(card: dict[str, Any], files: Mapping[str, bytes], key_id: str) -> ModelStatement:
    """State what a folder holds and what its card says that it was made from. Raises InvalidFile."""
    calibration = card["calibration"]
    sources = [*card["messages"], *card.get("answers", []), *([] if calibration is None else [calibration])]
    return ModelStatement(
        key_id=key_id,
        files={name: digest(data) for name, data in files.items()},
        sources=[
            ModelSource(
                id=of["release"] if "release" in of else of["answer"],
                digest=of["manifest_digest"] if "release" in of else of["document_digest"],
                key_id=of["key_id"],
                population=of["population"],
                batch=of["batch"],
                rehearsal=of.get("rehearsal", False),
                epsilon=EpsilonSplit.from_json(of["epsilon"]),
            )
            for of in sources
        ],
        epsilon=[
            ModelEpsilon(
                key_id=of["key_id"],
                population=of["population"],
                epsilon_per_example=Epsilon.canonical(of["epsilon_per_example"]),
                delta_per_example=Delta.canonical(of["delta_per_example"]),
            )
            for of in card["epsilon"]
        ],
    )


def verify(envelope: bytes | None, files: Mapping[str, bytes], signers: Signers) -> ModelStatement:
    """Verify the envelope of a folder and the digests of its files. Raises the VerificationFailed kind of the broken
    rule: no signature, one of nobody in `signers`, or files that are not those which were signed."""
    if envelope is None:
        raise SignatureInvalid(
            "The model is not signed. If you know where it comes from, sign it with: features-party models sign FOLDER."
        )
    key_id = named_key(envelope)
    key = next((one for one in signers if one.id == key_id), None)
    if key is None:
        ours = " or ".join(one.id for one in signers) or "a key of ours, which this party has not made yet"
        raise SignatureInvalid(
            f"The model is signed with the key {key_id[:80]!a}, where {ours} was expected. Name a key that you know by "
            "FEATURES_PARTY_MODEL_KEY, or take the model over with: features-party models verify FOLDER --key PUB, "
            "then models sign FOLDER."
        )
    model_statement, _ = ModelStatement.opened(envelope, key)
    for name in sorted({*model_statement.files, *files}):
        if name not in files or model_statement.files.get(name) != digest(files[name]):
            raise SignatureInvalid(f"The model's '{name}' is not the file that was signed: it was changed or replaced.")
    return model_statement
