"""Ledger of ε and δ: pure rules, their store, populations, and running totals."""
