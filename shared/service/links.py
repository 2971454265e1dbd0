"""The `Link` header of a page: where the next one is."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response


def link_docs(parameter: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI of the header, for a listing whose pages begin at `parameter`."""
    told = f'The next page, as `<?{parameter}=…>; rel="next"` relative to this one; absent on the last.'
    return {200: {"headers": {"Link": {"description": told, "schema": {"type": "string"}}}}}


def link_next(request: Request, response: Response, **begin: object) -> None:
    """Say that the next page is this call with `begin`; relative, so that it holds behind a proxy's own path."""
    query = urlencode({**request.query_params, **begin})
    response.headers["Link"] = f'<?{query}>; rel="next"'
