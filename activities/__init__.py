"""Temporal activities: thin shells around `dagwright`; workflows and activities never import each other."""
