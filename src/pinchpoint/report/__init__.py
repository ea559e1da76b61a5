"""Words and pictures from findings; computes nothing."""
