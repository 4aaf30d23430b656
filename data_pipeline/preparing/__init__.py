"""Text to a corpus: found, read, split, tokenised and written as shards, here or on many machines."""
