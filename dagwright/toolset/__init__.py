"""The tools of one process: built-in tools, modules of `--tools`, agents, and the files that tools may not access.

`toolset` collects the tools of a process, and `tool_directory` publishes their declarations for other workers. The
package imports `tools`, `agents` and `mcp_client`, but never `client` or `worker`.
"""
