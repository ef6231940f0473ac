"""Run a case and record it: devices, inputs, references, outcomes."""
