"""Human-in-the-loop requests: approval gate, opening of requests, validation and application of answers."""
