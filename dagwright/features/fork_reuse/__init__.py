"""Results that a fork reuses: fingerprints of nodes, and the component that completes nodes with reused results."""
