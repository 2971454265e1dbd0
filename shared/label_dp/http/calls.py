"""Roles and limits of every route, known before a byte of a body is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, routing
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.routing import Match

from label_dp.errors import NotFound
from label_dp.http.asgi import METHODS, Receive, Scope, Send
from label_dp.store.apikeys import Principal

SMALL_BODY = 1 << 20  # bytes of a body, by default
LARGE_BODY = 1 << 25
ANY = -1  # number of slashes

bearer = HTTPBearer(auto_error=False, description="An API key made with the `apikey create` command.")


@dataclass(frozen=True)
class Takes:
    """Dependency that limits the bytes of a route's body; None: an upload, limited by the settings."""

    most: int | None

    async def __call__(self) -> None:
        """Do nothing: `Bodies` reads `most`."""


UPLOAD, LARGE = Depends(Takes(None)), Depends(Takes(LARGE_BODY))


class Require:
    """Dependency that returns the caller, whose key has one of `roles`."""

    def __init__(self, roles: tuple[str, ...]) -> None:
        self.roles = frozenset(roles)

    async def __call__(
        self, request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
    ) -> Principal:
        # Front knows the caller already; the header parameter is here for the OpenAPI document
        caller: Principal = request.state.caller
        refuse_other_roles(caller, self.roles)
        return caller


def refuse_other_roles(caller: Principal, roles: frozenset[str]) -> None:
    """Raise the same NotFound as for an unknown object if the caller has another role."""
    if caller.role not in roles:
        raise NotFound("There is no such thing for this API key. Check the path and the role of the key.")


Answer = Callable[[Request], Coroutine[Any, Any, Mapping[str, Any]]]


@dataclass(frozen=True)
class Call:
    """Method of a path. `roles` None: public. `most` bytes of body; None: an upload. `quick` answers requests without a
    query."""

    method: str
    path: str
    roles: frozenset[str] | None
    most: int | None
    route: Any
    quick: Answer | None

    def note(self, scope: Scope) -> None:
        """Note the route in `scope`, for the log and the metrics."""
        scope["route"] = getattr(self.route, "original_route", self.route)


class Calls:
    """All calls of an application; read once its routes are complete."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self._known = app, dict[tuple[str, int], list[Call]]()

    def __iter__(self) -> Iterator[Call]:
        return (call for group in self._all().values() for call in group)

    def find(self, scope: Scope) -> Call | None:
        """Return the call that `scope` requests (HEAD as GET); None for an unknown path or method. Notes the parameters
        of the path in `scope`."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        request_scope = {**scope, "method": method, "path_params": {}}
        for slashes in (scope["path"].count("/"), ANY):
            for call in self._all().get((method, slashes), ()):
                match, found = call.route.matches(request_scope)
                if match is Match.FULL:
                    if slashes != ANY:
                        scope["path_params"] = found["path_params"]
                    return call
        return None

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the call that `find` found; only what it did not find is looked for in every router again."""
        call: Call | None = scope.get("state", {}).get("call")
        if call is None or "path_params" not in scope:
            await self.app.router.app(scope, receive, send)
            return
        call.note(scope)
        await call.route.app(scope, receive, send)

    def _all(self) -> dict[tuple[str, int], list[Call]]:
        """Return calls by method and number of slashes in their path; those of mounted folders under ANY."""
        if not self._known:
            contexts: Any = getattr(routing, "iter_route_contexts", iter)  # older versions keep one flat list
            calls: dict[tuple[str, int], list[Call]] = {}
            for route in contexts(self.app.router.routes):
                flat = getattr(route, "methods", None) is not None
                for call in _calls(route):
                    calls.setdefault((call.method, route.path.count("/") if flat else ANY), []).append(call)
            self._known = calls
        return self._known


def _calls(route: Any) -> Iterator[Call]:
    dependencies = list(_dependencies(getattr(route, "dependant", None)))
    roles = next((d.roles for d in dependencies if isinstance(d, Require)), None)
    takes = next((d for d in dependencies if isinstance(d, Takes)), Takes(SMALL_BODY))
    for method in METHODS:
        if method in (getattr(route, "methods", None) or ("GET",)):
            quick = getattr(getattr(route, "endpoint", None), "quick_answer", None)
            yield Call(method, route.path, roles, takes.most, route, quick)


def _dependencies(dependant: Any) -> Iterator[Any]:
    for inner in dependant.dependencies if dependant is not None else ():
        yield inner.call
        yield from _dependencies(inner)
