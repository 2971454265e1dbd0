"""Backup of a party's database and home in one file, of one moment while the service runs; restore, and the schema's
revision."""
