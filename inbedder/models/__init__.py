"""The model that is shipped with the package, and the base it stands on."""
