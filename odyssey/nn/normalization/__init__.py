"""Normalization."""
