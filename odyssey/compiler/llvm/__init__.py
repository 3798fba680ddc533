"""Scalars as LLVM IR: types, the function builder, elementary functions."""
