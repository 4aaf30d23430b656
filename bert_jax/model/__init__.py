"""BERT as pure flax.linen modules: `encoder` turns ids into hidden states, `heads` into predictions."""
