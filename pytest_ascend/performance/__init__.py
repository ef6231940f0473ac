"""How fast a device is, and whether it became slower: timing, baselines and the verdict."""
