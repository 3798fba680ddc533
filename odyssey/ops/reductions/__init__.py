"""Ops along axes: sums and their like, running ones, differences, what is read between points."""
