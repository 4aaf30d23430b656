"""Where parameters come from and go to, one module a format: `recognises`, `read` and `write`."""
