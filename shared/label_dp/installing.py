"""Extras of the distribution: how to install one, and which one the commands and the service of a party need."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

DISTRIBUTION = "label-dp-service"
# the extra of each party, and what it installs, by the names that are imported
SERVICE = (
    "fastapi fastapi_swagger uvicorn httptools sqlalchemy alembic prometheus_client python_multipart standardwebhooks "
    "joserfc matplotlib"
)
OF_PARTY = {
    "labels-party": ("labels", f"{SERVICE} numba highspy opendp orjson".split()),
    "features-party": ("features", f"{SERVICE} scipy threadpoolctl xgboost".split()),
}


def pip_install(extra: str) -> str:
    """Format `pip install 'label-dp-service[onnx]'`, by which pip adds the extra to the installed distribution."""
    try:
        version(DISTRIBUTION)
    except PackageNotFoundError:  # a checkout on the path, which was never installed
        return f"pip install '.[{extra}]' in the project's folder"
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_extra(party: str) -> str | None:
    """Name the extra that `party` needs if a package of it is not installed, else None."""
    extra, packages = OF_PARTY.get(party, ("", []))
    if all(map(find_spec, packages)):
        return None
    return f"{party} needs the extra '{extra}': {pip_install(extra)}."


def require_extra(party: str) -> None:
    """Raise ImportError if a package of the extra of `party` is not installed; call it before its work begins."""
    sentence = missing_extra(party)
    if sentence is not None:
        raise ImportError(sentence)
