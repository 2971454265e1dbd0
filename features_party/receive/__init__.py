"""Receiving messages and answers: fetched, verified, accounted for, acknowledged."""
