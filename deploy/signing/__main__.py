"""`make sign` and `make verify-signature`: a key for versions, the signed list of one, and what is here beside it.

python -m deploy.signing keygen --key version.key                 also writes version.pub
python -m deploy.signing sign --key version.key --images          dist/version.dsse.json and the schemas beside it
python -m deploy.signing verify --key version.pub --images
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from deploy.images.engine import ContainerEngine, Failed
from deploy.signing.parts import ROOT, Version, differences, images, schemas, sources
from label_dp.documents.signing import SigningKey, VerifyingKey, open_envelope
from label_dp.errors import InvalidFile, LabelDPError

LIST = "version.dsse.json"


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
    if told := differences(signed, here(with_images)):
        raise Failed("\n".join(told))
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
