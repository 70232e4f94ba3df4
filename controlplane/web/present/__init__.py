"""What a page says, as frozen values of text and numbers. Pure: no request, no markup, no clock.

Nothing is escaped here; the templates escape everything.
"""
