"""One module per revision of the table of agents; `stored.AGENTS` lists the revisions."""
