"""Large immutable objects, in a folder of the home or in an object store that several replicas share."""
