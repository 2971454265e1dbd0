"""Commands on files, with no service running: join, train, evaluate, rehearse."""
