"""Elementwise functions on broadcast operands."""
