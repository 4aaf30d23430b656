"""A prepared corpus on disk: its shards of token ids, its vocabulary, and what reads them."""
