"""REST of the labels party: thin over `Services`, nothing here touches labels or the database itself."""
