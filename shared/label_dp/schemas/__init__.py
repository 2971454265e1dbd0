"""What can be asked for, each thing declared once: REST bodies, commands, clients and the reference derive from it."""
