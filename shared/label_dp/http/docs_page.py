"""`/docs`: Swagger UI from a package of ours, so that the page works where the internet does not reach."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

ASSETS = "docs-assets"


def install_docs(app: FastAPI) -> None:
    """Serve `/docs`, its script and its style. Make `app` without `docs_url` and `redoc_url`: those load from a CDN."""
    app.mount(f"/{ASSETS}", StaticFiles(packages=[("fastapi_swagger", "resources")]), name="docs assets")

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        # relative addresses: a proxy may serve the service below a path of its own
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title=f"{app.title} – calls",
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
            swagger_ui_parameters={"displayRequestDuration": True, "filter": True},
        )
