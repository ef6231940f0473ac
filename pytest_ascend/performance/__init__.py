"""The speed of a device, and whether it regressed: timing, baselines and the verdict."""
