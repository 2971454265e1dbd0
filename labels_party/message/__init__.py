"""Messages of batches: request, plan, draw, signed manifest; on demand or by a schedule."""
