"""The expected model error of `label_dp.channels.model_error`, by which the labels party ranks mechanisms."""

import numpy as np
import numpy.typing as npt

from label_dp.channels.base import Channel
from label_dp.channels.correcting import best_outputs
from label_dp.channels.model_error import model_error as judged


def model_error(channel: Channel, prior: npt.NDArray[np.float64], n: int) -> dict[str, float]:
    """Apply the rule to one channel whose outputs are corrected by a features party's default."""
    return judged(channel, prior, n, best_outputs(channel, prior, n)[0])
