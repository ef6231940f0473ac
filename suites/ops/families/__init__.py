"""The catalogue by family: one line an operator."""
