"""Names of groups: the namers, and distinct names that are never empty."""
