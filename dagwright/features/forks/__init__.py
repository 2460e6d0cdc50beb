"""Forks: which results of another run a new run reuses, decided by fingerprints of its nodes."""
