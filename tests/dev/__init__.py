"""The developer machinery, tried on real processes and servers; it needs no Django."""
