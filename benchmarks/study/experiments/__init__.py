"""Experiments of the study, one module each."""
