"""Read-only samplers beside the load, in a process of their own. See ``docs/watch.md``."""
