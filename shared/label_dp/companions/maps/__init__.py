"""Public maps from scores and features to values: one arithmetic for fitting and for applying them."""
