"""Helpers that programs for Horovod find under this name."""
