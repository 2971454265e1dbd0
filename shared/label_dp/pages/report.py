"""Reports: one self-contained page to keep, print or send. It runs nothing and fetches nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from label_dp.documents.report import SignedReport, signature_of
from label_dp.documents.signing import SigningKey
from label_dp.pages.engine import engine
from label_dp.store.output_files import replacing, writable

MOST_BYTES = 2_000_000


def render(package: str, template: str, *, title: str, made: str, by: str, **values: Any) -> str:
    """A page from a template of `package`. `made` is a day, `by` says who made it and with which key it is signed."""
    css = resources.files("label_dp.pages").joinpath("static", "style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        engine(package)
        .get_template(f"{template}.html.jinja")
        .render(
            css=Markup(css),  # noqa: S704 - a file of ours
            policy=Markup(policy),  # noqa: S704 - made above, of letters and digits
            title=title,
            made=made,
            by=by,
            **values,
        )
    )


def write(out: Path, page: str, force: bool) -> None:
    """Raises InvalidFile where `out` may not be written."""
    writable(out, force)
    with replacing(out, force) as path:
        path.write_bytes(page.encode("utf-8"))


def envelope_of(data: bytes, key: SigningKey, signed: dict[str, Any]) -> bytes:
    """Sign the bytes of a page; `signed` are the members of a `SignedReport` but those of the bytes."""
    return SignedReport(**signed, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()).sign(key)


def write_signed(out: Path, page: str, key: SigningKey, signed: dict[str, Any], force: bool) -> None:
    """Write the page, and beside it its signature (`envelope_of`). Raises InvalidFile."""
    data, beside = page.encode("utf-8"), signature_of(out)
    writable(beside, force)
    envelope = envelope_of(data, key, signed)
    write(out, page, force)
    with replacing(beside, force) as path:
        path.write_bytes(envelope)
