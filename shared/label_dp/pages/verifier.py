"""Verifier in one HTML file: handed over beside every statement, and served under `/verify`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from label_dp.store.output_files import replacing

NAME = "verify.html"
# it writes text nodes alone: nothing in a document becomes a script
INLINE = "'unsafe-inline'"
POLICY = f"default-src 'none'; script-src {INLINE}; style-src {INLINE}; base-uri 'none'; form-action 'none'"


def verifier() -> bytes:
    """Return the page."""
    return resources.files("label_dp.pages").joinpath(NAME).read_bytes()


def write_statement(page: str, out: Path, *, force: bool) -> None:
    """Write a statement, and the verifier beside it if none lies there. Raises as `replacing`."""
    with replacing(out, force) as path:
        path.write_text(page, "utf-8")
    if out.is_file() and not out.with_name(NAME).exists():
        out.with_name(NAME).write_bytes(verifier())
