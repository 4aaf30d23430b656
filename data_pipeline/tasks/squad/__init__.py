"""SQuAD: files, windows of passages, answers, and scores."""
