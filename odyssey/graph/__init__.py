"""Graphs of instructions, and the trace that writes one: what runs on Symbols."""
