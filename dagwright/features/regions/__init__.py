"""Region batches: input and output of one activity execution of a region."""
