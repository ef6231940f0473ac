"""Building the corpus: recorded samples of torch's own database of operators. Only ``baseline build`` imports this."""
