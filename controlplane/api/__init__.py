"""HTTP: routes of operators and workers, OTLP, who may do what, and how refusals look.

Routes read the request, call one service and shape the answer; they decide nothing.
"""
