"""One module for each revision of the store's tables, numbered; `migrating.REVISIONS` lists them."""
