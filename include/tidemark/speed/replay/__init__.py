"""Dead letters delivered once more, exactly once."""
