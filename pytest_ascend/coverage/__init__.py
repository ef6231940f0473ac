"""What has to run, what is known to deviate, and which part of it a run takes."""
