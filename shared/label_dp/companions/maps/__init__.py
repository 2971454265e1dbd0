"""Public maps from scores and features to values: the arithmetic of who fits one and of who applies it."""
