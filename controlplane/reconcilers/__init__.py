"""What happens by itself: each reconciler observes, plans, records and acts, in that order.

A reconciler takes no input; a timer and a nudge start the same tick. It never acts on a decision
that is not committed, and never retries inside a tick.
"""
