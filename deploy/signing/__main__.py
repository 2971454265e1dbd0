"""`make sign` and `make verify-signature`: a key for versions, the signed list of one, and what is here beside it.

python -m deploy.signing keygen --key version.key                 also writes version.pub
python -m deploy.signing sign --key version.key --images          dist/version.dsse.json and the schemas beside it
python -m deploy.signing verify --key version.pub --images
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Literal

from deploy.images.engine import ContainerEngine, Failed
from label_dp.documents.answer import Answer
from label_dp.documents.canonical import digest
from label_dp.documents.export import AuditExport
from label_dp.documents.manifest import Manifest
from label_dp.documents.receipt import Receipt
from label_dp.documents.report import SignedReport
from label_dp.documents.signed import Document
from label_dp.documents.signing import SigningKey, VerifyingKey, open_envelope
from label_dp.errors import InvalidFile, LabelDPError

ROOT = Path(__file__).parents[2]
DOCUMENTS: tuple[type[Document], ...] = (Manifest, Answer, Receipt, AuditExport, SignedReport)
IMAGES = ("label-dp/labels-party", "label-dp/features-party")
LIST = "version.dsse.json"


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
    parts = {f"file:{path.name}": path.read_bytes() for path in files}
    parts |= {f"schema:{name}": data for name, data in schemas().items()}
    return {name: f"sha256:{digest(data)}" for name, data in parts.items()}


def images(engine: ContainerEngine, names: tuple[str, ...] = IMAGES) -> dict[str, str]:
    """What the engine of this machine has by these names. An image's id is the digest of its configuration, which names
    each of its layers by digest. Raises Failed."""
    inspect = ("image", "inspect", "--format", "{{.Id}}")
    return {f"image:{name}": engine.docker(*inspect, name).strip() for name in names}


def differences(signed: dict[str, str], here: dict[str, str]) -> list[str]:
    """A sentence for each part that is not as it was signed, or not on both sides."""
    lines = []
    for name in sorted(signed.keys() | here.keys()):
        if name not in here:
            lines.append(f"{name} was signed and is not here.")
        elif name not in signed:
            lines.append(f"{name} is here and was not signed.")
        elif signed[name] != here[name]:
            lines.append(f"{name} is {here[name]} here; signed was {signed[name]}.")
    return lines


def parser() -> argparse.ArgumentParser:
    """The words of `python -m deploy.signing`."""
    made = argparse.ArgumentParser("python -m deploy.signing", description="Sign what a version is made of.")
    words = made.add_subparsers(dest="word", required=True)
    for word, help_, key in (
        ("keygen", "make a key for versions", "file of the private key; the public one lies beside it as .pub"),
        ("sign", "write the signed list and the schemas", "file of the private key"),
        ("verify", "compare what is here with the signed list", "file of the public key"),
    ):
        one = words.add_parser(word, help=help_)
        one.add_argument("--key", type=Path, required=True, help=key)
        if word != "keygen":
            one.add_argument("--images", action="store_true", help="the images of this machine's engine, too")
            one.add_argument("--folder", type=Path, default=ROOT / "dist", help="where the list lies (dist)")
    return made


def keygen(path: Path) -> str:
    """Write both halves of a new key. Raises InvalidFile where there is one already."""
    made = SigningKey.generate()
    try:
        made.save(path, path.with_suffix(".pub"))
    except FileExistsError:
        raise InvalidFile(f"'{path}' exists; a key is never overwritten. Give another name.") from None
    return made.public.id


def here(with_images: bool) -> dict[str, str]:
    """Hash the sources of this version, and its images if `with_images`."""
    return sources() | (images(ContainerEngine(ROOT)) if with_images else {})


def sign(key: SigningKey, folder: Path, with_images: bool) -> str:
    """Write the list and the schemas. Raises Failed."""
    listed = Version(version=version("label-dp-service"), parts=here(with_images))
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in schemas().items():
        (folder / name).write_bytes(data)
    (folder / LIST).write_bytes(listed.sign(key))
    return f"{folder / LIST}: {len(listed.parts)} parts of version {listed.version}, signed by {key.public.id}"


def verify(key: VerifyingKey, folder: Path, with_images: bool) -> str:
    """What was signed is what is here. Raises Failed, with a sentence for each part that is not, and LabelDPError."""
    try:
        envelope = (folder / LIST).read_bytes()
    except OSError as error:
        raise InvalidFile(f"The signed list '{folder / LIST}' cannot be read ({error.strerror}).") from None
    most = Version.MOST_ENVELOPE
    listed = Version.from_payload(open_envelope(envelope, key, Version.TYPE, max_bytes=most))
    signed = {name: value for name, value in listed.parts.items() if with_images or not name.startswith("image:")}
    if lines := differences(signed, here(with_images)):
        raise Failed("\n".join(lines))
    left = len(listed.parts) - len(signed)
    return f"{len(signed)} parts of version {listed.version} are as they were signed" + (
        f"; {left} images were not looked at (--images)" if left else ""
    )


def main() -> None:
    """Run the command."""
    given = parser().parse_args()
    try:
        if given.word == "keygen":
            print(keygen(given.key))
        elif given.word == "sign":
            print(sign(SigningKey.load(given.key), given.folder, given.images))
        else:
            print(verify(VerifyingKey.load(given.key), given.folder, given.images))
    except LabelDPError as refusal:
        print(f"error: {refusal.detail}", file=sys.stderr)
        sys.exit(refusal.exit_code)
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
