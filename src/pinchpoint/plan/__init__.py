"""What shall be done: frozen values, read once from a file, flags and overrides."""
