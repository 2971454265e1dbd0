"""The whole job on files, for the command line, by the same services that the API calls."""
