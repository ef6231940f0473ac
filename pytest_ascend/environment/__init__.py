"""What this machine is and has, each statement with the evidence for it."""
