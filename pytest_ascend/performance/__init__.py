"""The speed of a device, and whether it became slower: timing, baselines and the verdict."""
