"""The pytest plugin: hooks and fixtures."""
