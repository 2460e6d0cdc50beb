"""One module per schema revision, numbered; `database.PARTIES` lists them."""
