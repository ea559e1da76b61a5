"""Read-only samplers, each measuring its own cost."""
