"""The frozen data types that the other packages exchange."""

#: Levels of thoroughness, from the quickest. A level includes the ones before it.
LEVELS = ("smoke", "standard", "full")
