"""Lowering: from a graph of table ops to IR nodes."""
