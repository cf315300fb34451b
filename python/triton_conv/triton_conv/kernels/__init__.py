"""The device code."""
