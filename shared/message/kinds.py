"""Every kind of signed answer that this version reads: importing this registers them."""

from __future__ import annotations

from shared.message import calibration as calibration
from shared.message import linear_model as linear_model
from shared.message import median as median
from shared.message import prediction as prediction
from shared.message import rectangle as rectangle
