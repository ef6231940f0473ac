"""Several ranks: groups of processes that run a function together, and diagnosis of a distributed training."""
