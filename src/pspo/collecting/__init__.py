"""Collecting data: behaviour policies, their episodes, and an online learner to get such policies from."""
