"""Pages of the labels party for people, with the same services and roles as REST."""
