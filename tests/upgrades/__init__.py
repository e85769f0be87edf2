"""What released versions wrote, kept as fixtures, and read by the code of today."""
