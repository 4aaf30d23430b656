"""The formats that models are read from and written to, one module each: `recognises`, `read`, `write`.

`open_model` finds out which format a directory has.
"""
