"""Information of a privatized label about a class: the mean square contingency of label and output.

φ² = (Σ_{y,o} p_y·M[y, o]²/q_o − 1)/(k − 1) with q = pM is Pearson's χ² of the table of labels and outputs per example,
divided by the k − 1 of a table without noise. It is 1 if the output is the label, 0 if it carries no information, and
for two labels the square of their correlation. A message of n outputs counts as n·φ² labels without noise.
"""

from __future__ import annotations

import numpy as np

from label_dp.channels.base import Channel, FloatArray

RULE = (
    "share of information φ² = (Σ p(y)·P(o | y)²/P(o) − 1)/(k − 1), Pearson's contingency of label and output: 1 "
    "without noise, 0 where the output says nothing; n labels are judged as worth n·φ² labels without noise"
)


def share_of_information(channel: Channel, prior: FloatArray) -> float:
    """Compute φ² of a channel of k ≥ 2 labels that follow `prior` float64[k]; an output that never occurs counts as
    0."""
    matrix = channel.matrix()
    outputs = prior @ matrix
    squares = prior @ (matrix * matrix)
    total = float(np.sum(np.divide(squares, outputs, out=np.zeros_like(outputs), where=outputs > 0)))
    return min(1.0, max(0.0, (total - 1.0) / (channel.k - 1)))
