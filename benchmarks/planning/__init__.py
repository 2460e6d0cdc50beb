"""Score the plans that a model writes for requests."""
