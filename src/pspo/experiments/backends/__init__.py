"""Where jobs run: processes on this machine, or Ray. Each is a `Backend` (jobs.py); used by the rest of experiments."""

__all__ = []
