"""Both images, and the compose file played with a real engine: `make images`."""
