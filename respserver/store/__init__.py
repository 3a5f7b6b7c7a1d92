"""Stores of responses."""
