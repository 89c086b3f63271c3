"""Scripts that run as they stand, and an algorithm that is not part of pspo: docs/examples.md and docs/adding.md."""
