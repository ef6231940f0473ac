"""How fast a device is, and whether that is slower than it was: timing, baselines and the verdict."""
