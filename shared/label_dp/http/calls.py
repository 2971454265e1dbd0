"""Roles and limits of every route, found before a byte of a body is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, routing
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.routing import Match

from label_dp.errors import NotFound
from label_dp.http.asgi import METHODS, Scope
from label_dp.store.apikeys import Principal

SMALL_BODY = 1 << 20  # bytes of a body, where a route says nothing else
LARGE_BODY = 1 << 25
ANY = -1  # number of slashes

bearer = HTTPBearer(auto_error=False, description="An API key made with the `apikey create` command.")


@dataclass(frozen=True)
class Takes:
    """A dependency that says how many bytes a route's body may have; None: an upload, as the settings say."""

    most: int | None

    async def __call__(self) -> None:
        """Nothing: whoever bounds bodies looks at `most`."""


UPLOAD, LARGE = Depends(Takes(None)), Depends(Takes(LARGE_BODY))


class Require:
    """A dependency: the caller, whose key has one of `roles`."""

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
    """Raises the same NotFound as for an unknown object."""
    if caller.role not in roles:
        raise NotFound("There is no such thing for this API key. Check the path and the role of the key.")


@dataclass(frozen=True)
class Call:
    """One method of a path. `roles` None: no key is asked for. `most` bytes of body; None: an upload."""

    method: str
    path: str
    roles: frozenset[str] | None
    most: int | None
    route: Any


class Calls:
    """All calls of an application; read once its routes are complete."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self._known = app, dict[tuple[str, int], list[Call]]()

    def __iter__(self) -> Iterator[Call]:
        return (call for group in self._all().values() for call in group)

    def find(self, scope: Scope) -> Call | None:
        """The call that `scope` asks for (HEAD as GET); None for an unknown path, or another method of a known one."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        asked = {**scope, "method": method, "path_params": {}}
        for slashes in (scope["path"].count("/"), ANY):
            for call in self._all().get((method, slashes), ()):
                if call.route.matches(asked)[0] is Match.FULL:
                    return call
        return None

    def _all(self) -> dict[tuple[str, int], list[Call]]:
        """Calls by method and the number of slashes of their path; those of mounted folders under ANY number."""
        if not self._known:
            contexts: Any = getattr(routing, "iter_route_contexts", iter)  # older versions keep one flat list
            known: dict[tuple[str, int], list[Call]] = {}
            for route in contexts(self.app.router.routes):
                flat = getattr(route, "methods", None) is not None
                for call in _calls(route):
                    known.setdefault((call.method, route.path.count("/") if flat else ANY), []).append(call)
            self._known = known
        return self._known


def _calls(route: Any) -> Iterator[Call]:
    said = list(_dependencies(getattr(route, "dependant", None)))
    roles = next((d.roles for d in said if isinstance(d, Require)), None)
    takes = next((d for d in said if isinstance(d, Takes)), Takes(SMALL_BODY))
    for method in METHODS:
        if method in (getattr(route, "methods", None) or ("GET",)):
            yield Call(method, route.path, roles, takes.most, route)


def _dependencies(dependant: Any) -> Iterator[Any]:
    for inner in dependant.dependencies if dependant is not None else ():
        yield inner.call
        yield from _dependencies(inner)
