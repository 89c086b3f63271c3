"""Ranges that a policy network and its NumPy version share."""

LOG_STD_MIN, LOG_STD_MAX = -5.0, 1.0  # of a mixture policy
MEAN_MAX = 3.0  # squash(3) is at the bound: no mean need be further out
FREE_LOG_STD_MIN, FREE_LOG_STD_MAX = -5.0, 2.0  # of a Gaussian whose standard deviation does not depend on the state
MASKED = -1e9  # logit of a label that is not available: its probability is exactly zero, and no difference is NaN
LATENT_MAX = 0.5  # of a sampled latent of a VAE, so that decoded actions stay near the data
