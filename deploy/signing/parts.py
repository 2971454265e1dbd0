"""The parts of a version, each by its SHA-256, and the signed list of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, Literal

from deploy.images.engine import ContainerEngine
from label_dp.documents.answer import Answer
from label_dp.documents.canonical import digest
from label_dp.documents.export import AuditExport
from label_dp.documents.manifest import Manifest
from label_dp.documents.receipt import Receipt
from label_dp.documents.report import SignedReport
from label_dp.documents.signed import Document

ROOT = Path(__file__).parents[2]
DOCUMENTS: tuple[type[Document], ...] = (Manifest, Answer, Receipt, AuditExport, SignedReport)
IMAGES = ("label-dp/labels-party", "label-dp/features-party")


class Version(Document):
    """The parts of one version: `name` → "sha256:…"."""

    FORMAT: ClassVar[str] = "label-dp-version/1"
    TYPE: ClassVar[str] = "application/vnd.label-dp.version+json"
    NOUN: ClassVar[str] = "list of a version"
    format: Literal["label-dp-version/1"] = "label-dp-version/1"
    version: str
    parts: dict[str, str]


def schemas() -> dict[str, bytes]:
    """The JSON schema of each signed document, as the file that `make sign` writes."""
    return {
        f"{each.FORMAT.split('/')[0]}.schema.json": (
            json.dumps(each.model_json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        ).encode()
        for each in DOCUMENTS
    }


def sources() -> dict[str, str]:
    """The parts that this folder itself has: schemas, locks, and what describes the bytes of messages."""
    files = [
        *sorted((ROOT / "deploy" / "locks").glob("*.txt")),
        ROOT / "shared" / "label_dp" / "documents" / "FORMAT.md",
    ]
    found = {f"file:{path.name}": path.read_bytes() for path in files}
    found |= {f"schema:{name}": data for name, data in schemas().items()}
    return {name: f"sha256:{digest(data)}" for name, data in found.items()}


def images(engine: ContainerEngine, names: tuple[str, ...] = IMAGES) -> dict[str, str]:
    """What the engine of this machine has by these names. An image's id is the digest of its configuration, which names
    each of its layers by digest. Raises Failed."""
    inspect = ("image", "inspect", "--format", "{{.Id}}")
    return {f"image:{name}": engine.docker(*inspect, name).strip() for name in names}


def differences(signed: dict[str, str], here: dict[str, str]) -> list[str]:
    """A sentence for each part that is not as it was signed, or not on both sides."""
    told = []
    for name in sorted(signed.keys() | here.keys()):
        if name not in here:
            told.append(f"{name} was signed and is not here.")
        elif name not in signed:
            told.append(f"{name} is here and was not signed.")
        elif signed[name] != here[name]:
            told.append(f"{name} is {here[name]} here; signed was {signed[name]}.")
    return told
