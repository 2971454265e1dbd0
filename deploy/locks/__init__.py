"""Versions and hashes of all packages, and which of them each party installs: `make lock`."""
