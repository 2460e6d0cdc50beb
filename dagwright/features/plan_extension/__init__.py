"""Plans that grow while they run: the protocol of a plan extender and its driver."""
