"""A small application for tests: a warehouse with shelves, built on the extension points of Dagwright alone."""
