"""The signed content of a version: the schemas of signed documents, the locks and the images. `make sign`."""
