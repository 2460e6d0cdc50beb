"""One module per revision of the table of agents; `stored_agents.AGENTS` lists the revisions."""
