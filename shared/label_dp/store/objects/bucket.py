"""Room of an object store, through obstore: whole objects in and out, with retries."""

from __future__ import annotations

import contextlib
import logging
import re
from collections import OrderedDict
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO, Self

import tenacity

from label_dp.errors import Unavailable
from label_dp.logs import event
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.objects.port import CHUNK, Anywhere, Stored, StoreRefused

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

log = logging.getLogger("label_dp.objects")
PIECE, PIECES = 1 << 21, 24  # bytes of an object that is read here and there, and how many pieces stay in memory
PARTS, AT_ONCE = 9000, 2  # parts of an object at most (stores take 10,000), and parts in memory while it is sent
TRIES = 3  # of a whole object; the client retries each of its requests as well
LONGEST_PAUSE = 5.0
SIGNED_SECONDS = 600
# what may pass within a minute, whatever was sent: codes in an answer of the store, or of who gives credentials
PASSING = {
    "ServiceUnavailable", "SlowDown", "InternalError", "InternalFailure", "RequestTimeout", "Throttling",
    "ThrottlingException", "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId",
    "InvalidIdentityToken", "IDPCommunicationError", "NoSuchBucket", "ContainerNotFound",
}  # fmt: skip
FULL = {"QuotaExceeded"}  # some makers' 403
REFUSING = {"413", "507"}  # too large or no room, as a proxy says it, without a code
CODE, STATUS = re.compile(r"<Code>([A-Za-z]{1,64})</Code>"), re.compile(r"status code: (\d{3})")


class StoreFailed(Unavailable):
    """Temporary failure of the store."""


class Bucket:
    """Objects below `root`, such as "prefix/labels". Every call raises Unavailable if the store fails, and its
    subclass StoreRefused if the failure may depend on the content."""

    def __init__(self, store: S3Store | GCSStore | AzureStore, root: str, faults: FaultHook = no_faults) -> None:
        self.store, self.root, self.fault = store, root, faults

    def below(self, room: str) -> Self:
        return type(self)(self.store, self.path(room), self.fault)

    def path(self, key: str) -> str:
        return f"{self.root}/{key}".strip("/")

    def send(self, key: str, file: BinaryIO) -> None:
        """Store the whole file as an object, in parts if it is large; it appears only when complete."""
        self.fault("objects.send:begin")
        part = max(CHUNK, file.seek(0, 2) // PARTS)
        for attempt in _tries():
            with attempt:
                file.seek(0)
                with _translated("send"):
                    self.store.put(self.path(key), file, chunk_size=part, max_concurrency=AT_ONCE)
        self.fault("objects.send:end")

    def fetch(self, key: str, file: BinaryIO) -> None:
        """Write the whole object into an empty file. Raises FileNotFoundError, OSError (the disk)."""
        path = self.path(key)
        for attempt in _tries():
            with attempt:
                file.seek(0)
                file.truncate()
                with _translated("fetch", absent=True):
                    size = self.store.head(path)["size"]
                for start in range(0, size, CHUNK):
                    with _translated("fetch", absent=True):
                        chunk = self.store.get_range(path, start=start, end=min(start + CHUNK, size))
                    file.write(chunk)
        file.flush()

    def size(self, key: str) -> int:
        """Return the size of an object. Raises FileNotFoundError."""
        for attempt in _tries():
            with attempt, _translated("look", absent=True):
                return int(self.store.head(self.path(key))["size"])
        raise AssertionError("unreachable")

    def piece(self, key: str, start: int, end: int) -> bytes:
        """Return some bytes of an object. Raises FileNotFoundError."""
        for attempt in _tries():
            with attempt, _translated("fetch", absent=True):
                return bytes(self.store.get_range(self.path(key), start=start, end=end))
        raise AssertionError("unreachable")

    def delete(self, key: str) -> None:
        """Delete an object; does nothing if there is none."""
        for attempt in _tries():
            with attempt, contextlib.suppress(FileNotFoundError), _translated("delete", absent=True):
                self.store.delete(self.path(key))

    def listed(self, prefix: str) -> list[Stored]:
        """As `Objects.listed`."""
        start = len(self.path("x")) - 1
        objects: list[Stored] = []
        for attempt in _tries():
            with attempt, _translated("list"):
                metas = [meta for page in self.store.list(self.path(prefix)) for meta in page]
                objects = [
                    Stored(meta["path"][start:], meta["last_modified"].timestamp(), meta["size"]) for meta in metas
                ]
        return sorted(objects, key=lambda stored: stored.key)

    def folders(self) -> list[str]:
        """List the names of its folders, in order."""
        names: list[str] = []
        for attempt in _tries():
            with attempt, _translated("list"):
                below = self.store.list_with_delimiter(self.root)["common_prefixes"]
                names = [prefix.rpartition("/")[2] for prefix in below]
        return sorted(names)

    def there(self) -> bool:
        """Return whether the bucket exists; nothing here creates it."""
        try:
            for attempt in _tries():
                with attempt, _translated("list", absent=True):
                    next(iter(self.store.list(self.root, chunk_size=1)), None)
        except FileNotFoundError:
            return False
        return True

    def signed(self, key: str) -> str:
        """Sign a URL: its holder may fetch that object, for some minutes. Raises Unavailable (no credentials)."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            return str(obstore.sign(self.store, "GET", self.path(key), timedelta(seconds=SIGNED_SECONDS)))
        except BaseError:
            raise Unavailable("No URL of the object store can be signed; look at its credentials.") from None


class StoredFile(Anywhere):
    """Object of a bucket, read in pieces of PIECE bytes, of which the last few stay in memory."""

    def __init__(self, bucket: Bucket, key: str, size: int) -> None:
        super().__init__()
        self._bucket, self._key, self._size = bucket, key, size
        self._pieces: OrderedDict[int, bytes] = OrderedDict()

    def _bytes(self, start: int, stop: int) -> bytes:
        numbers = range(start // PIECE, -(-stop // PIECE))
        return b"".join(memoryview(self._piece(at))[max(start - at * PIECE, 0) : stop - at * PIECE] for at in numbers)

    def _piece(self, number: int) -> bytes:
        if number not in self._pieces:
            end = min((number + 1) * PIECE, self._size)
            self._pieces[number] = self._bucket.piece(self._key, number * PIECE, end)
            while len(self._pieces) > PIECES:
                self._pieces.popitem(last=False)
        self._pieces.move_to_end(number)
        return self._pieces[number]


def _tries() -> tenacity.Retrying:
    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(TRIES),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=LONGEST_PAUSE),
        retry=tenacity.retry_if_exception_type(StoreFailed),
        reraise=True,
    )


@contextlib.contextmanager
def _translated(during: str, *, absent: bool = False) -> Iterator[None]:
    """Raise the store's errors as ours, without their text, which quotes keys; errors of the disk pass. `absent`: what
    is not there raises FileNotFoundError."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        # typed errors know no "slow down" and no "full": the store's own word for it is in the text
        matches = CODE.search(str(error)), STATUS.search(str(error))
        code, status = (match and match[1] for match in matches)
        if absent and (isinstance(error, FileNotFoundError) or status == "404"):
            raise FileNotFoundError("There is no such object.") from None
        what = code or type(error).__name__
        log.warning(
            "object store: %s during %s", what, during, extra=event("store-failed", failure=what, during=during)
        )
        no_access = isinstance(error, PermissionDeniedError | UnauthenticatedError) and code not in FULL
        passing = no_access or code in PASSING or status in {"429", "500", "502", "503", "504"}
        if not passing and (code or status in REFUSING):
            raise StoreRefused(
                "The object store refused what was sent; the log of this service names the reason."
            ) from None
        raise StoreFailed("The object store cannot be used; try again later, or look at its address.") from None
