"""`serve`: the REST service and its worker."""

from __future__ import annotations

from typing import Any

from features_party.cli.app import app, services
from label_dp.cli.party_commands import add_serve


def _application(services: Any) -> Any:
    from features_party.api.app import create_app

    return create_app(services)


add_serve(app, "features party", 8002, services, _application)
