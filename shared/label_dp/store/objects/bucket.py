"""Room of an S3-compatible store, through Arrow: whole objects in and out, with retries."""

from __future__ import annotations

import contextlib
import errno
import logging
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Self

import tenacity

from label_dp.errors import Unavailable
from label_dp.logs import event
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.objects.port import Stored, StoreRefused

log = logging.getLogger("label_dp.objects")
CHUNK = 1 << 23
TRIES = 3  # of a whole object; the client retries each of its requests as well
LONGEST_PAUSE = 5.0
# errors that may pass within a minute, whatever was sent
PASSING = (
    "NETWORK_CONNECTION", "SERVICE_UNAVAILABLE", "SLOW_DOWN", "INTERNAL_FAILURE", "REQUEST_TIMEOUT", "THROTTLING",
    "ACCESS_DENIED", "EXPIRED_TOKEN", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "SIGNATURE_DOES_NOT_MATCH",
    "REQUEST_EXPIRED", "NO_SUCH_BUCKET", "HTTP status 500", "HTTP status 502", "HTTP status 503", "HTTP status 504",
)  # fmt: skip
REASON = re.compile(r"AWS Error ([A-Z_]+)(?: \([^)]*\))? during (\w+)")


class StoreFailed(Unavailable):
    """Temporary failure of the store."""


class Bucket:
    """Objects below `root`, such as "bucket/prefix/labels". Every call raises Unavailable if the store fails, and its
    subclass StoreRefused if the failure may depend on the content."""

    def __init__(self, filesystem: Any, root: str, faults: FaultHook = no_faults) -> None:
        self.filesystem, self.root, self.fault = filesystem, root, faults

    def below(self, room: str) -> Self:
        return type(self)(self.filesystem, f"{self.root}/{room}", self.fault)

    def path(self, key: str) -> str:
        return f"{self.root}/{key}"

    def send(self, key: str, file: BinaryIO) -> None:
        """Store the whole file as an object, in parts if it is large; it appears only when complete."""
        self.fault("objects.send:begin")
        for attempt in _tries():
            with attempt:
                file.seek(0)
                with _translated(), self.filesystem.open_output_stream(self.path(key)) as out:
                    while chunk := file.read(CHUNK):
                        out.write(chunk)
        self.fault("objects.send:end")

    def fetch(self, key: str, file: BinaryIO) -> None:
        """Write the whole object into an empty file. Raises FileNotFoundError, OSError (the disk)."""
        for attempt in _tries():
            with attempt:
                file.seek(0)
                file.truncate()
                with _translated(), self.filesystem.open_input_stream(self.path(key)) as came:
                    while chunk := came.read(CHUNK):
                        file.write(chunk)
        file.flush()

    def delete(self, key: str) -> None:
        """Delete an object; does nothing if there is none."""
        for attempt in _tries():
            with attempt, _translated(), contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_file(self.path(key))

    def listed(self, prefix: str) -> list[Stored]:
        """As `Objects.listed`."""
        from pyarrow import fs

        below = fs.FileSelector(self.path(prefix).rstrip("/"), recursive=True, allow_not_found=True)
        entries: list[Any] = []
        for attempt in _tries():
            with attempt, _translated():
                entries = self.filesystem.get_file_info(below)
        files = [info for info in entries if info.type == fs.FileType.File]
        start = len(self.root) + 1
        return sorted((Stored(f.path[start:], f.mtime_ns / 1e9) for f in files), key=lambda stored: stored.key)

    def folders(self) -> list[str]:
        """List the names of its folders, in order."""
        from pyarrow import fs

        entries: list[Any] = []
        for attempt in _tries():
            with attempt, _translated():
                entries = self.filesystem.get_file_info(fs.FileSelector(self.root, allow_not_found=True))
        return sorted(info.base_name for info in entries if info.type == fs.FileType.Directory)

    def there(self) -> bool:
        """Return whether the bucket exists; nothing here creates it."""
        from pyarrow import fs

        for attempt in _tries():
            with attempt, _translated():
                return bool(self.filesystem.get_file_info(self.root.split("/", 1)[0]).type != fs.FileType.NotFound)
        raise AssertionError


def _tries() -> tenacity.Retrying:
    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(TRIES),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=LONGEST_PAUSE),
        retry=tenacity.retry_if_exception_type(StoreFailed),
        reraise=True,
    )


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise the store's errors as ours, without their text, which quotes keys; errors of the disk pass."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno not in (None, errno.EIO):
            raise
        text = str(error)
        reason = REASON.search(text)
        what, during = reason.groups() if reason else ("a failure", "a request")
        fields = event("store-failed", failure=what, during=during)
        log.warning("object store: %s during %s", what, during, extra=fields)
        if reason and not any(passing in text for passing in PASSING):
            raise StoreRefused(
                "The object store refused what was sent; the log of this service names the reason."
            ) from None
        raise StoreFailed("The object store cannot be used; try again later, or look at its address.") from None
