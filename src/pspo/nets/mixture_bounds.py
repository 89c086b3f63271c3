"""Ranges of a mixture policy's parameters: shared by the trained network and its NumPy twin."""

LOG_STD_MIN, LOG_STD_MAX = -5.0, 1.0
MEAN_MAX = 3.0  # squash(3) is at the bound: means have no business further out
