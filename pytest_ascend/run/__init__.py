"""From a case to its record: what has to run, on what, and what became of it."""
