"""What run logs mean: counts, the verdict, the comparison of two runs, merged shards. All arithmetic of a report."""
