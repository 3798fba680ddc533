"""Resampling of images: interpolation, grid sampling, pixel shuffle."""
