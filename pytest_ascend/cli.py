"""The command line ``pytest-ascend``."""


def main() -> None:
    """Run the command line."""
