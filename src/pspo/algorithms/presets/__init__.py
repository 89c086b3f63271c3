"""Numbers of every preset, one TOML file for each algorithm; read by pspo.algorithms.registry only."""
