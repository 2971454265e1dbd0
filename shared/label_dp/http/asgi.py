"""Names of the server interface (ASGI), and which methods a path answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.routing import Match

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The last of each header, by lower-case name."""
    return dict(scope["headers"])


def method_of(scope: Scope) -> str:
    """The method, one of a bounded number of names."""
    known = (*METHODS, "HEAD", "OPTIONS")
    return str(scope["method"]) if scope["method"] in known else "other"


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods that some route answers at the path of `scope`; HEAD goes with GET, OPTIONS with any."""
    found = [
        method
        for method in METHODS
        if any(
            route.matches({**scope, "method": method, "path_params": {}})[0] is Match.FULL
            for route in app.router.routes
        )
    ]
    if "GET" in found:
        found.insert(1, "HEAD")
    return [*found, "OPTIONS"] if found else []
