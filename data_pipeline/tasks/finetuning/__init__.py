"""What the data of every task share: files, labels, encoding, rows and batches."""
