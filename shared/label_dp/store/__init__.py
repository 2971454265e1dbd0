"""Storage of both parties: transactions of the database, the home folder, objects, files that appear whole."""
