"""Pure bytes ↔ values, no sockets: event streams, OpenAI bodies both ways, metrics text."""
