"""What the other parts hand to each other, as frozen data."""

#: How thorough a run is, from the quickest. A level includes the ones before it.
LEVELS = ("smoke", "standard", "full")
