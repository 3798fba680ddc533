"""Ways to compute the works of a program, plans of them, and their choice by measurement."""
