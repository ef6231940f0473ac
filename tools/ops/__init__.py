"""Making the corpus: samples of torch's own database of operators, recorded. Only ``baseline build`` imports this."""
