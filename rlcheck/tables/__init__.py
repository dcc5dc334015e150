"""The documented experiments, run by ``python -m rlcheck.tables NAME``."""
