"""The only place where raw labels come in: intake, validation, masking, the sealed store."""
