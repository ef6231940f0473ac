"""Pages: what they say and how they are drawn. Nothing is computed here that a verdict depends on."""
