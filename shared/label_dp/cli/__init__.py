"""Shared parts of both command lines: options from schemas, output for people and programs, one line per error."""
