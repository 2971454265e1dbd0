"""Calibrations: scores of examples in, a private monotone map from score to label out."""
