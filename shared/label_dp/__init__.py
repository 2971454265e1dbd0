"""What both parties must agree on: privacy parameters, losses, channels, messages, errors. Imports neither party."""
