"""Plan and execute: a model writes a plan, its nodes run, the model replans or answers."""
