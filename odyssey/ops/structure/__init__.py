"""Ops that make, move, join, pick and order elements."""
