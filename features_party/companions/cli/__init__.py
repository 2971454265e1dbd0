"""Commands about calibrations; the order is that of the help."""

from __future__ import annotations

from features_party.companions.cli import ask_calibration as ask_calibration
from features_party.companions.cli import calibrate as calibrate
