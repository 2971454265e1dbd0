"""REST of the labels party (DESIGN §5): thin over `Services`, nothing here touches labels or the database itself."""
