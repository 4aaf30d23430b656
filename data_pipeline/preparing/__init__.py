"""Text to a corpus: finds, reads, splits and tokenises it, and writes shards, here or on many machines."""
