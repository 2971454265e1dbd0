"""The pages of the features party: for people, over the same services and with the same roles as REST."""
