"""Tagged words: files in columns, rows, and scores."""
