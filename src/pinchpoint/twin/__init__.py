"""A small simulator of the cluster, fitted from a measured table."""
