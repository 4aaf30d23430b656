"""Fine-tuning: heads on a pretrained encoder, each with its loss, and the runs that train them."""
