"""Judging a policy without a simulator: what it would earn, with an interval, and whether to believe it."""

METHODS = {
    "models": "posterior models",
    "fitted-q": "fitted Q",
    "importance": "importance sampling",
    "doubly-robust": "doubly robust",
}
"""As a command line has them, and as they are called."""
