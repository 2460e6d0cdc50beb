"""What crosses the process boundary: wire names, limits, inputs, outputs and documents."""
