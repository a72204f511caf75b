"""Environments of other libraries, played as they are: each bridge is a file, and its library an extra."""
