"""Storage of both parties: the one door to the database, the home folder, objects, files that appear whole."""
