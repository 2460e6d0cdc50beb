"""Commands to a running plan: pause, stop, retry, override a result, add nodes."""
