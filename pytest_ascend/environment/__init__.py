"""What is known about this machine, each statement with its evidence."""
