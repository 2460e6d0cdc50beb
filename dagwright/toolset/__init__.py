"""The tools of one process: built-in tools, modules of `--tools`, agents, and the files that tools may not access.

`toolset` collects them for a process, `tool_directory` publishes their declarations for workers. Imports `tools`,
`agents`, `mcp_client` and other libraries, and never `client` or `worker`.
"""
