"""External plans: read, check and compile documents; templates; pages of large plans."""
