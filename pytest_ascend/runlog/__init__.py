"""The run log: its form, its writer, its readers."""
