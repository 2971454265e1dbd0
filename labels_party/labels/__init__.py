"""The only place where raw labels come in: intake, validation, encryption, the sealed store."""
