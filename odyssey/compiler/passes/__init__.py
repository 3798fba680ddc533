"""Passes over the IR: simplification, windowed products, layout assignment, rematerialization."""
