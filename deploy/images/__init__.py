"""Both images built, and the Compose section of the README played, with a real engine: `make images`."""
