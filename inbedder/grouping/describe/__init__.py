"""Description of groups: answers, keywords, examples, names."""
