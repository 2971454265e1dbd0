"""Demo of both services on made-up clicks."""
