"""Bounded caches on local disks."""
