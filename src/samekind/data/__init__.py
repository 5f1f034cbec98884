"""Data: from files and arrays to training batches. Depends on no method."""
