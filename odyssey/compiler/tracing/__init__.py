"""Tracing attempts, and the snapshot that undoes their side effects."""
