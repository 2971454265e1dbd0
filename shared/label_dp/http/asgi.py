"""Types of the server interface (ASGI), and the methods that a path answers."""

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
    """Map lower-case header names to their first values, as the framework reads them."""
    return dict(reversed(scope["headers"]))


def is_utf8(content_type: str) -> bool:
    """Return whether no other charset is named: a form's parser decodes in any, and some take quadratic time."""
    return "charset" not in content_type.lower().replace("charset=utf-8", "")


def method_of(scope: Scope) -> str:
    """Return the method, or "other": the number of names is bounded."""
    names = (*METHODS, "HEAD", "OPTIONS")
    return str(scope["method"]) if scope["method"] in names else "other"


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """List the methods that some route answers at the path of `scope`; HEAD comes with GET, OPTIONS with any."""
    methods = [
        method
        for method in METHODS
        if any(
            route.matches({**scope, "method": method, "path_params": {}})[0] is Match.FULL
            for route in app.router.routes
        )
    ]
    if "GET" in methods:
        methods.insert(1, "HEAD")
    return [*methods, "OPTIONS"] if methods else []
