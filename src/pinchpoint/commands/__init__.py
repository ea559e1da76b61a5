"""Each command as a function that returns values; the command line only parses and prints."""
