"""Commands of the companions; the order is that of the help."""

from __future__ import annotations

# isort: off
from labels_party.companions.cli import asking as asking
from labels_party.companions.cli import predictors as predictors
from labels_party.companions.cli import answers as answers
from labels_party.companions.cli import audit_privacy as audit_privacy
# isort: on
