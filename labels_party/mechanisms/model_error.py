"""The expected model error of `shared.model_error`, by which the labels party ranks mechanisms."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shared.channel import Channel
from shared.correcting import best_outputs
from shared.model_error import EXPLAINED, RULE
from shared.model_error import model_error as judged

__all__ = ["EXPLAINED", "RULE", "model_error"]


def model_error(channel: Channel, prior: npt.NDArray[np.float64], n: int) -> dict[str, Any]:
    """The rule for one channel whose outputs are corrected as a features party corrects them by default."""
    return judged(channel, prior, n, best_outputs(channel, prior, n)[0])
