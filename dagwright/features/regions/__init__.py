"""Region batches: what one activity execution of a region receives and returns."""
