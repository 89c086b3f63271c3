"""Ranges that a policy network and its NumPy twin share."""

LOG_STD_MIN, LOG_STD_MAX = -5.0, 1.0  # of a mixture policy
MEAN_MAX = 3.0  # squash(3) is at the bound: means have no business further out
FREE_LOG_STD_MIN, FREE_LOG_STD_MAX = -5.0, 2.0  # of a Gaussian whose spread is a vector of its own
LATENT_MAX = 0.5  # of a sampled latent of a VAE: what it decodes then is near what it has seen
