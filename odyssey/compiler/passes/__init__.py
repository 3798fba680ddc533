"""Passes over the IR: simplification, window products, layout assignment, rematerialization."""
