"""Kinds of answers beside the message: calibration, median, rectangle, linear model, prediction.

Their kinds, maps and costs. The core finds them by name, and works without them.
"""
