"""The publisher's guide has a line for PyTorch: a network with weights by noise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from features_party.integrations.frames import noise_weights

GUIDE = Path(__file__).parents[3] / "deploy" / "guides" / "publisher.md"


@pytest.mark.torch
def test_the_line_of_the_guide_learns_more_than_one_without_weights() -> None:
    import torch

    (line,) = re.findall(r"^\| PyTorch \| `(.*)` \|$", GUIDE.read_text("utf-8"), re.M)
    rng, n = np.random.default_rng(0), 4000
    inputs = rng.normal(size=(n, 3))
    truth, noise = inputs @ [1.0, -2.0, 0.5], np.where(np.arange(n) % 2, 400.0, 1.0)
    z = truth + np.sqrt(noise) * rng.normal(size=n)
    frame = pa.table({"corrected_label": z, "noise_variance": noise})
    x, errors = torch.as_tensor(inputs), []
    for weights in (noise_weights, lambda frame: np.ones(frame.num_rows)):
        net = torch.nn.Sequential(torch.nn.Linear(3, 1, dtype=torch.float64), torch.nn.Flatten(0))
        known: dict[str, Any] = {"torch": torch, "noise_weights": weights, "frame": frame, "net": net, "x": x, "z": z}
        best = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(400):
            best.zero_grad()
            exec(line, known)  # the project's own guide
            known["loss"].backward()
            best.step()
        errors.append(float(np.mean((net(x).detach().numpy() - truth) ** 2)))
    assert errors[0] < 0.2 * errors[1]
