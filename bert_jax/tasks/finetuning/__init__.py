"""What the fine-tuning of every task shares: flags, grid, batches, prediction and results."""
