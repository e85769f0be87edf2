"""A task that writes offset ranges as data objects: sink, task, file, spill."""
