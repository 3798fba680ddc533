"""Arrays in memory: conversion, ownership, and locks against writes."""
