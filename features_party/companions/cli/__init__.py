"""Commands of calibrations and sums; the order is that of the help."""

from __future__ import annotations

from features_party.companions.cli import ask_calibration as ask_calibration
from features_party.companions.cli import ask_sums as ask_sums
from features_party.companions.cli import calibrate as calibrate
