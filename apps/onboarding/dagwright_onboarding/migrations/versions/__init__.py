"""One module for each revision of the store's tables, numbered; `database.PARTIES` lists them."""
