"""Mechanisms of the companions: isotonic regression, medians by slices, private prediction.

Pure, as those of the core.
"""
