"""Simulated rollout pipelines: durations, the event loop, what its log must obey, weight sync."""
