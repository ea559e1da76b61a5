"""The only room that sends load."""
