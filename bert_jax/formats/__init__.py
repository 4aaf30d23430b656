"""The formats that models are read from and written to, one module each: `recognises`, `read`, `write`."""
