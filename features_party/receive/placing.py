"""Message under a name of the user's choice: NAME.parquet with its envelope and prior beside it, or a folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from features_party.receive.offers import Offer
from label_dp.documents.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE, Bundle, verify
from label_dp.documents.manifest import Manifest
from label_dp.errors import InvalidFile, InvalidInput, LabelDPError
from label_dp.store.folders import copy_file, fsync_folder, place_folder


@dataclass(frozen=True)
class CopyTarget:
    """Place of an offered message; a folder if the message has several parts."""

    offer: Offer
    path: Path

    @staticmethod
    def of(offer: Offer, out: Path) -> CopyTarget:
        """Choose the place: an existing folder takes a message of one part under the name of its release."""
        return CopyTarget(offer, out / f"{offer.manifest.id}.parquet" if out.is_dir() and not offer.several else out)

    def intact(self) -> bool:
        """Return whether this very message lies there, byte for byte."""
        try:
            verified_message = verify(self.path, self.offer.key, self.offer.audience)
        except LabelDPError:
            return False
        prior = self.offer.manifest.prior_file
        return verified_message.digest == self.offer.digest and (prior is None) == (verified_message.prior_path is None)

    def refuse_other(self) -> None:
        """Raise InvalidInput if anything but this message, intact or damaged, would be replaced."""
        out, bundle = self.path, Bundle(self.path)
        if not bundle.envelope_path.exists() and (not out.exists() or (out.is_dir() and not any(out.iterdir()))):
            return
        present = None
        with contextlib.suppress(LabelDPError):
            present = Manifest.trusted(bundle.envelope(), self.offer.key, None)[1]
        if present != self.offer.digest:
            raise InvalidInput(
                f"'{out}' exists already and is not this message. Give --force to replace it, or choose another name."
            )

    @contextmanager
    def beside(self) -> Iterator[Path]:
        """Yield a folder in the same file system for verified files; they get their names at the end, all or none.
        Raises InvalidFile if they cannot be written or there is no room."""
        self.require_room()
        temporary = self._name()
        try:
            temporary.mkdir(mode=0o700)
            yield temporary
            self._place(temporary)
        except OSError as error:
            raise InvalidFile(f"The message cannot be written to '{self.path}' ({error.strerror}).") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def require_room(self) -> None:
        """Raise InvalidFile if there is no room, or no folder can be made."""
        folder, total = self.path.parent, self.offer.bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise InvalidFile(f"The folder of '{self.path}' cannot be made ({error.strerror}).") from None
        if total > free:
            raise InvalidFile(f"The message has {total} bytes, and '{folder}' has room for {free}. Make room first.")

    def copy_from(self, folder: Path) -> None:
        """Copy the files of our own copy. Raises as `beside`."""
        with self.beside() as temporary:
            for entry in self.offer.manifest.files:
                copy_file(folder / entry.name, temporary / entry.name)

    def _name(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}")

    def _place(self, temporary: Path) -> None:
        """Give the verified files their names, replacing earlier ones."""
        out, several = self.path, self.offer.several
        aside = self._name()
        if out.is_dir() or (several and out.exists()):
            out.rename(aside)
        try:
            if several:
                (temporary / FOLDER_ENVELOPE).write_bytes(self.offer.envelope)
                place_folder(temporary, out)
            else:
                self._place_beside(temporary)
        finally:
            if aside.is_dir():
                shutil.rmtree(aside, ignore_errors=True)
            aside.unlink(missing_ok=True)

    def _place_beside(self, temporary: Path) -> None:
        """Move the envelope first and the message last: a visible message is complete."""
        out, manifest, bundle = self.path, self.offer.manifest, Bundle(self.path)
        envelope_part = temporary / f"envelope{ENVELOPE_SUFFIX}"
        envelope_part.write_bytes(self.offer.envelope)
        moves = [(envelope_part, out.with_name(out.name + ENVELOPE_SUFFIX))]
        for entry in sorted(manifest.files, key=lambda entry: entry.role == "message"):
            moves.append((temporary / entry.name, bundle.file_path(entry)))
        if manifest.prior_file is None:  # left by an earlier message
            out.with_name(out.stem + ".prior.parquet").unlink(missing_ok=True)
        for source, target in moves:
            with source.open("rb") as file:
                os.fsync(file.fileno())
            source.replace(target)
        fsync_folder(out.parent)
