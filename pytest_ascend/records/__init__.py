"""The frozen data types that the other packages exchange."""

#: How thorough a run is, from the quickest. A level includes the ones before it.
LEVELS = ("smoke", "standard", "full")
