"""Tables in, frozen findings out: no printing, no files written, no clock read."""
