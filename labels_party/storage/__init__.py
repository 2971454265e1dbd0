"""Tables, migrations and the file side of the labels party's state."""
