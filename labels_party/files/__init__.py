"""Jobs on files for the command line, with the same services as the API."""
