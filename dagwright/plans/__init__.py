"""Plans from outside: read, check and compile documents; templates; pages of large plans."""
