"""The plumbing both services have in common: the one door to the database, API keys, HTTP and command-line habits."""
