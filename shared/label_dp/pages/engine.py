"""The template engine of pages and reports: everything is escaped, and what is missing is an error."""

from __future__ import annotations

import jinja2
from markupsafe import Markup

from label_dp.documents.statement_text import visible
from label_dp.pages.words import FILTERS


def engine(package: str) -> jinja2.Environment:
    """Of the templates of `package`, then of ours."""
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("label_dp.pages")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
    )
    found.filters |= FILTERS
    return found
