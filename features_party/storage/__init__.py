"""Storage of the features party: its tables, home folder and files."""
