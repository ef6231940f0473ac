"""From a case to its record: devices, inputs, references, outcomes."""
