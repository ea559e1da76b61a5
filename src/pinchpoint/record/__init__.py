"""The record: tables with declared types, a run folder that is valid at every instant."""
