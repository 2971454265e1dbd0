"""Pages of the features party, over the same services and with the same roles as REST."""
