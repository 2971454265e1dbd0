"""Requests, each declared once: REST bodies, commands, clients and the reference derive from them."""
