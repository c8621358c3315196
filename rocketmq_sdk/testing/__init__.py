"""Tools for tests of applications and of this package."""
