"""What a version is made of, signed: the schemas of signed documents, the locks and the images. `make sign`."""
