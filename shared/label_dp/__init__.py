"""Agreement of both parties: privacy parameters, losses, channels, messages, errors. Imports neither party."""
