"""Ledgers of usage."""
