"""The tools of one process: built-in tools, modules of `--tools`, agents, and the files that tools may not access."""
