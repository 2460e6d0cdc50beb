"""The conversation that the runs of a session share, and the names of the session's values."""
