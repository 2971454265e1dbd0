"""Applications that share what FastAPI works out of their routers at the first request: 0.15 s for each, otherwise.

State, middleware and whatever stands in `create_app` itself belong to each application alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, routing
from starlette.routing import BaseRoute

_known: dict[Any, list[BaseRoute]] = {}


def application(create_app: Callable[[Any], FastAPI], services: Any) -> FastAPI:
    """`create_app(services)`, whose included routers are those of the first application that it made."""
    made = create_app(services)
    included = getattr(routing, "_IncludedRouter", None)  # older versions keep one flat list, which stays as it is
    if included is not None:
        own = [route for route in made.router.routes if isinstance(route, included)]
        others = iter(_known.setdefault((create_app, len(own)), own))  # a test may have added a kind of work
        made.router.routes[:] = [next(others) if isinstance(r, included) else r for r in made.router.routes]
    return made
