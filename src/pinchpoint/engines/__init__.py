"""Engines pinchpoint starts itself: llama.cpp with a micro model, and servers of known timing."""
