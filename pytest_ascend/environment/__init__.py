"""Facts about this machine, each statement with its evidence."""
