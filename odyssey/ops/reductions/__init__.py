"""Reductions along axes, cumulative functions, statistics and numerical calculus."""
