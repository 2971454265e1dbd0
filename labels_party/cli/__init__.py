"""The command `labels-party`. Heavy modules are imported by the commands that need them, so that help is instant."""

from __future__ import annotations

# Each module registers its commands; the order is that of the help.
# isort: off
from labels_party.cli import keys as keys
from labels_party.cli import check as check
from labels_party.cli import populations as populations
from labels_party.cli import privatize as privatize
from labels_party.cli import planning as planning
from labels_party.cli import officer as officer
from labels_party.cli import lists as lists
from labels_party.cli import erasures as erasures
from labels_party.cli import approvals as approvals
from labels_party.cli import daily as daily
from labels_party.cli import set_aside as set_aside
from labels_party.cli import webhooks as webhooks
from labels_party.cli import rotation as rotation
from labels_party.cli import backups as backups
# isort: on

from label_dp.cli.startup import run
from label_dp.named_modules import installed
from labels_party.cli.app import app as app

installed("labels_party.companions.cli")


def main() -> None:
    """Run the command line."""
    run(app)
