"""`serve`: the REST service and its worker."""

from __future__ import annotations

from typing import Any

from label_dp.cli.party_commands import add_serve
from labels_party.cli.app import app, services


def _application(services: Any) -> Any:
    from labels_party.api.app import create_app

    return create_app(services)


add_serve(app, "labels party", 8001, services, _application)
