"""Scheduling: fusion, buffer assignment, work partition, and their verifier."""
