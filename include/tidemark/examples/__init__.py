"""Examples: streams that use the platform's parts. The platform does not depend on them."""
