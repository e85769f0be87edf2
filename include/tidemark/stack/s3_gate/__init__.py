"""A TLS gate before the stack's S3 server: signatures, sessions of roles, policies and server-side encryption."""
