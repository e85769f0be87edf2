"""The stream that archives a topic: driver, micro-batches, schedule."""
