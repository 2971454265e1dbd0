"""Checks a privatized message or an audit export; run the folder itself, `command.py` says how."""
