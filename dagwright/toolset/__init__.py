"""The tools of one process: built-in tools, modules named by `--tools`, agents, and what they may not read."""
