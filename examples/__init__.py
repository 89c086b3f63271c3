"""Complete scripts (docs/examples.md), and an algorithm that is not part of pspo (docs/adding.md)."""
