"""Fine-tuning data: published files and a user's own -> examples -> rows of ids -> batches of numpy."""
