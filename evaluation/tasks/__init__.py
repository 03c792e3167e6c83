"""Tasks: data, instructions and metric of each measurement."""
