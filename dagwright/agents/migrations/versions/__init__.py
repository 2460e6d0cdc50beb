"""One module for each revision of the table of agents; `stored.AGENTS` lists them."""
