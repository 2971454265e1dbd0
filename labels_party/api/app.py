"""The application of the labels party."""

from __future__ import annotations

from fastapi import FastAPI

from label_dp.http.application import application
from label_dp.named_modules import installed
from labels_party.api import asking, audit, erasures, holdings, intake, people, webhooks, work
from labels_party.bootstrap import Services
from labels_party.pages import site as pages
from labels_party.pages.foresight import Foresight
from labels_party.work.kind import FAMILIES, SchemaKind

DEPENDS_ON_LABELS = frozenset(
    {
        "/v1/batches/{batch}/labels",
        "/v1/batches/{batch}/examples",  # the owner is refused another list once there are labels
        "/v1/batches/{batch}/seal",
        "/v1/batches/{batch}/set-aside",
        "/v1/batches/{batch}/set-aside/{upload}",
        "/v1/batches/{batch}/purge",
        # these are refused before the batch has sealed, or afterwards, and whether it sealed by itself tells of labels
        "/v1/batches/{batch}",
        "/v1/batches/{batch}/releases",
        "/v1/batches/{batch}/events",
        "/batches/{name}",  # the page shows its owner the same
        "/new/{name}",  # pages that check and take a file, seal and release
        "/batches/{name}/release",
        "/batches/{name}/discard",
        "/v1/populations/{population}/plan",
    }
)


def create_app(services: Services) -> FastAPI:
    """The REST service over `services`; its background work starts and stops with it."""
    foresight = Foresight()

    def start() -> None:
        if services.settings.worker:
            services.worker.start()
            services.sender.start()

    def stop() -> None:
        foresight.close()
        services.close()

    parts = (work, holdings, erasures, people, webhooks, audit)
    companions = installed("labels_party.companions.api")
    kinds = [kind for kind in services.work.kinds.values() if isinstance(kind, SchemaKind)]
    app = application(
        services,
        [
            *(intake.router, work.plans),
            *(part.router for part in parts),
            *(() if companions is None else companions.ROUTERS),
            *map(work.router_of, FAMILIES),
            *map(asking.router_of, kinds),
            *pages.routers(),
        ],
        title="Labels party",
        summary="Sensitive labels in, one signed, privatized message out, every ε accounted for.",
        start=start,
        stop=stop,
        workers=(services.worker, services.sender),
        look=services.figures.look,
        dead="The release worker is not running; restart the service.",
        silent=DEPENDS_ON_LABELS
        | (frozenset() if companions is None else companions.DEPENDS_ON_LABELS)
        | {f"/v1{path}" for kind in kinds for path in asking.paths_of(kind)},
    )
    app.state.site = pages.site(services)
    app.state.foresight = foresight
    return app
