"""Plan extension: the protocol of plan extenders, which add nodes to a running plan, and its component."""
