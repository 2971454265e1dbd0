"""The command `features-party`. Heavy modules are imported by the commands that need them, so that help is instant."""

from __future__ import annotations

# Each module registers its commands; the order is that of the help.
# isort: off
from features_party.cli import messages as messages
from features_party.cli import training as training
from features_party.cli import officer as officer
from features_party.cli import answers as answers
from features_party.cli import models as models
from features_party.cli import rehearse as rehearse
from features_party.cli import daily as daily
from features_party.cli import keys as keys
from features_party.cli import backups as backups
# isort: on

from features_party.cli.app import app as app
from label_dp.cli.startup import run
from label_dp.named_modules import installed

installed("features_party.companions.cli")


def main() -> None:
    """Run the command line."""
    run(app)
