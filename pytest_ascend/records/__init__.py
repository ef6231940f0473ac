"""What the other parts hand to each other, as frozen data."""
