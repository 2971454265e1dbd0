"""Conformance kit of the signed documents: files with their verdicts, a runner, and two clients of the project."""
