"""The body of a large answer, at the cost of moving its bytes once."""

from __future__ import annotations

from collections.abc import Iterator

import httpcore
import httpx

PIECE = 1 << 20


def large_body(response: httpx.Response) -> Iterator[bytes]:
    """The body piece by piece. Raises httpx.TransportError.

    Past what came with the head it is read from the connection itself where its length is stated, in larger pieces than
    the parser of HTTP takes, and copied once less. The connection is not used again then.
    """
    stream = response.extensions.get("network_stream")
    length = response.headers.get("Content-Length", "")
    coded = "Transfer-Encoding" in response.headers or "Content-Encoding" in response.headers
    if stream is None or coded or not length.isdecimal() or response.http_version != "HTTP/1.1":
        yield from response.iter_bytes()
        return
    parsed = response.iter_raw()  # held until the end: dropped, it closes the connection
    piece = next(parsed, b"")  # the parser holds no more than this after it
    left = int(length) - len(piece)
    yield piece
    wait = response.request.extensions.get("timeout", {}).get("read")
    while left > 0:
        try:
            piece = stream.read(min(PIECE, left), timeout=wait)
        except httpcore.TimeoutException as error:
            raise httpx.ReadTimeout(str(error)) from None
        except httpcore.NetworkError as error:
            raise httpx.ReadError(str(error)) from None
        if not piece:
            raise httpx.ReadError("the connection was closed")
        left -= len(piece)
        yield piece
