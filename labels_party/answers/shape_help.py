"""What help and OpenAPI say of the options of shapes; imports nothing, so that help stays instant."""

from __future__ import annotations

# `tests/unit/test_calibration_shapes.py` holds it against the registry
OPTIONS = {
    "bins": "cells (such as cells=64, or cells=16x16 of two scores)",
    "monotone": "levels",
    "pieces": "pieces (needed), cells, values",
    "linear": "pieces (needed), knots, steps, values",
    "lipschitz": "lipschitz (needed), knots, steps, values",
    "convex": "knots, steps, values",
    "concave": "knots, steps, values",
    "grid": "cells (such as cells=8x8), values",
}
SHAPES = (
    "auto (bins; if the loss is absolute monotone, or grid of two scores), bins (one score or two), monotone, pieces, "
    "linear, lipschitz, convex, concave; or grid, of two scores."
)
SHAPE_OPTIONS = "NAME=VALUE of the shape; repeatable. " + "; ".join(f"{s} takes {o}" for s, o in OPTIONS.items()) + "."
