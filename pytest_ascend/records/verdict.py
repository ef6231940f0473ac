"""What the judge found, as data: the figures of one comparison, kept for passes too."""
