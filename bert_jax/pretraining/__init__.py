"""What pretraining learns: the objective, its losses and metrics, evaluation on held-out text."""
