"""Tools for moving to an NPU, or from one version of its stack to the next."""
