"""Human-in-the-loop requests: which node asks, whether an answer is valid, and what the answer changes."""
