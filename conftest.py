"""Makes pytester available to the tests of the plugin itself; the plugin comes through its entry point."""

pytest_plugins = ["pytester"]
