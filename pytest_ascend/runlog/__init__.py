"""The run log: schema, writer and readers."""
