"""A party's database and home as one file, from one moment while the service runs, and back; the schema's revision."""
