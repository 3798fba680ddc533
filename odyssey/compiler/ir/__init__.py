"""Intermediate representation (IR): nodes, views, and rewriting of graphs."""
