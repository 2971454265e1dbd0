"""The pages of the labels party: for people, over the same services and with the same roles as REST."""
