"""Options that the audit commands of both parties have; imports nothing heavy, so that help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Against = Annotated[
    Path | None,
    typer.Option(
        metavar="EXPORT",
        help="Compare this party's store with an export of the other party, or an older one of its own: finds a "
        "rollback, a fork, a missing or altered release.",
    ),
]
