"""One module for each kind of caller or thing; each has a `router`, and `app` includes them all."""
