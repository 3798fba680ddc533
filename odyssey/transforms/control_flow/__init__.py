"""Loops and branches as functions: scan, cond and while_loop, with their derivatives."""
