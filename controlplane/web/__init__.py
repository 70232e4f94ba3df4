"""The pages: for a person at 3 a.m., without JavaScript if need be. Nothing here changes a fleet.

`pages` reads and renders, `present` turns values into words, `templates` into markup.
"""
