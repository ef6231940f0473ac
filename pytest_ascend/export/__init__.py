"""What other programs and people at a terminal get of a run."""
