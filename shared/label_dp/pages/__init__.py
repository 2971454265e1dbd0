"""Pages for people, rendered on the server without scripts of their own."""
