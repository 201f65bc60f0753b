"""The metadata of the cluster: the store that keeps it, the controller that changes it, the image that all read."""
