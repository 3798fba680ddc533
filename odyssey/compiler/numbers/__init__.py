"""Arithmetic as LLVM's text: words, elementary functions, and numbers that only a call knows."""
