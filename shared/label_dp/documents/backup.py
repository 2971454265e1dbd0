"""Signed description of a backup, by which changes are detected."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from label_dp.documents.members import KeyId, Moment, Sha256, Strict, Text
from label_dp.documents.signed import Document
from label_dp.documents.signing import BACKUP_TYPE


class BackupMember(Strict):
    """File of a backup."""

    name: Text
    bytes: int = Field(ge=0)
    sha256: Sha256


class BackupManifest(Document):
    """Manifest of a backup. `version` is the program's, `revision` the database's; `count` and `head` are the audit
    store's.

    `objects` are names in an object store, which has them; `keys` the private files of `keys/` that a restore needs.
    """

    FORMAT: ClassVar[str] = "label-dp-backup/1"
    TYPE: ClassVar[str] = BACKUP_TYPE
    NOUN: ClassVar[str] = "backup's manifest"
    MOST_ENVELOPE: ClassVar[int] = 1 << 29

    format: Literal["label-dp-backup/1"] = "label-dp-backup/1"
    party: Text
    key_id: KeyId
    version: Text
    engine: Text
    revision: Text
    made: Moment
    count: int = Field(ge=0)
    head: str
    members: list[BackupMember]
    objects: list[str]
    keys: list[str]
