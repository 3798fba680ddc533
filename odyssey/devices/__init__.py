"""Devices and their arrays: conversion, ownership, and locks against writes.

>>> import odyssey as od
>>> od.devices.cpu
Device('cpu')
"""

from odyssey.devices.device import Device, cpu, cuda

__all__ = ["Device", "cpu", "cuda"]


def __dir__() -> list[str]:
    return sorted(__all__)
