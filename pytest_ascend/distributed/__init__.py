"""Several ranks: groups of processes that run a function together, and what a distributed training did."""
