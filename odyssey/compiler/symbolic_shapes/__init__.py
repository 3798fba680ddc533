"""Symbolic shapes: one program for all sizes of arguments declared to vary."""
