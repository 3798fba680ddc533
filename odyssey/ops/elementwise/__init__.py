"""Ops that work element by element on broadcast operands."""
