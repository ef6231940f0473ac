"""What a run leaves behind: the log, and the summary, page and terminal lines made from it alone."""
