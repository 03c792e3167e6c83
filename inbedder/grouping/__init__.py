"""Groups of texts under an instruction: found, named, shown."""
