"""An encoder of Avro's binary form, written from its specification, like another vendor's producer."""

import struct


def varint(number: int) -> bytes:
    """A long: zigzag, seven bits a byte, low ones first."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def text(value: str | bytes) -> bytes:
    """A string or bytes: its length, then itself."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(len(raw)) + raw


def double(value: float) -> bytes:
    return struct.pack("<d", value)


def union(branch: int, encoded: bytes = b"") -> bytes:
    """A value of the branch of a union, counted from 0."""
    return varint(branch) + encoded


def block(*encoded: bytes) -> bytes:
    """An array; a map, where each part is a key with its value."""
    return (varint(len(encoded)) + b"".join(encoded) if encoded else b"") + varint(0)
