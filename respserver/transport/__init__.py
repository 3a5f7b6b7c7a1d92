"""Sockets and HTTP: one port, three protocols."""
