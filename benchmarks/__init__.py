"""Speed of the library, measured as ratios inside one process: `python -m benchmarks.speed`."""
