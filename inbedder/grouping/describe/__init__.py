"""Description of groups: keywords, examples, duplicate and loose groups."""
