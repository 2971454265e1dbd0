"""What the tests cover and what they kill; nothing of it is written into the repository."""
