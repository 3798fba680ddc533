"""Scalars and dimensions whose values are known only at a call."""
