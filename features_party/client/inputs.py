"""Calls about inputs: feature tables, messages, answers, the audit store."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

from features_party.client import paths as at
from label_dp.client.conversation import Conversation, Json, Request, ask, content, delete, entries, get, path, post
from label_dp.client.declared import call
from label_dp.client.listings import linked
from label_dp.client.tables import as_parquet

if TYPE_CHECKING:
    from label_dp.columnar.frames import Frame


class InputCalls:
    """Calls about inputs."""

    @call
    def upload_table(self, table: Frame, id_column: str, name: str = "upload") -> Conversation[Json]:
        """Store a feature table; `id` of the reply names it."""
        return ask(as_parquet("POST", path(at.TABLES), table, id_column=id_column, name=name))

    @call
    def use_file(self, file: str, id_column: str) -> Conversation[Json]:
        """Use a file below the service's data folder."""
        return post(at.TABLES, body={"path": file, "id_column": id_column})

    @call
    def tables(self, limit: int | None = None) -> Conversation[list[Json]]:
        """List stored feature tables, oldest first."""
        return linked(at.TABLES, limit=limit)

    @call
    def table(self, table_id: str) -> Conversation[Json]:
        """Return name, id column, rows and columns."""
        return get(at.TABLE, table_id)

    @call
    def delete_table(self, table_id: str) -> Conversation[None]:
        """Remove a table that no training needs."""
        return delete(at.TABLE, table_id)

    @call
    def send_ids(
        self, table_id: str, url: str, batch: str, api_key: str | None = None, *, time_column: str | None = None
    ) -> Conversation[Json]:
        """Declare the table's ids as the examples of a labels party's open batch, with times if their column is
        named."""
        body: Json = {"url": url, "batch": batch, "api_key": api_key}
        return post(at.ID_LIST, table_id, body=body | ({} if time_column is None else {"time_column": time_column}))

    @call
    def pull(self, url: str, release: str, api_key: str | None = None) -> Conversation[Json]:
        """Have the service fetch, verify and account for a release."""
        return post(at.MESSAGES, body={"url": url, "release": release, "api_key": api_key})

    @call
    def upload_message(self, files: dict[str, bytes]) -> Conversation[Json]:
        """Upload a message by file names and bytes: the signed manifest (….dsse.json) and its files."""
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return ask(Request("POST", path(at.MESSAGES), content=sink.getvalue(), content_type="application/x-tar"))

    @call
    def messages(self, limit: int | None = None) -> Conversation[list[Json]]:
        """List accepted messages and their ε, oldest first."""
        return linked(at.MESSAGES, limit=limit)

    @call
    def message(self, release: str) -> Conversation[Json]:
        """Return an accepted message, by its release id or its digest."""
        return get(at.MESSAGE, release)

    @call
    def pull_answer(self, url: str, answer: str, api_key: str | None = None, wait: float = 0.0) -> Conversation[Json]:
        """Have the service fetch, verify, account for and store an answer; it waits up to `wait` seconds (30 at most)
        for its publication."""
        body = {"url": url, "answer": answer, "api_key": api_key} | ({"wait": wait} if wait else {})
        return post(at.ANSWERS, body=body)

    @call
    def upload_answer(self, envelope: bytes) -> Conversation[Json]:
        """Upload a signed answer that came another way."""
        return post(at.ANSWERS, body=json.loads(envelope))

    @call
    def answers(self, limit: int | None = None) -> Conversation[list[Json]]:
        """List accepted answers and their ε, oldest first."""
        return linked(at.ANSWERS, limit=limit)

    @call
    def answer(self, answer_id: str) -> Conversation[Json]:
        """Return an accepted answer with its result, by its id or the digest of its document."""
        return get(at.ANSWER, answer_id)

    @call
    def answer_document(self, answer_id: str) -> Conversation[bytes]:
        """Return the signed document as received."""
        return content(at.DOCUMENT, answer_id)

    @call
    def audit_events(self, after: int = 0, limit: int = 200) -> Conversation[list[Json]]:
        """List audit events behind a sequence number, each with its exact ε split."""
        return entries(at.AUDIT_EVENTS, after=after, limit=limit)

    @call
    def pinned_keys(self) -> Conversation[list[Json]]:
        """List the trusted keys of labels parties: their owners, and their first and last days."""
        return entries(at.PINNED_KEYS)
