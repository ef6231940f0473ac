"""What must run, what is known to deviate, and which part a run executes."""
