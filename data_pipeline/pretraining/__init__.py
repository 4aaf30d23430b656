"""Documents to batches: order, pairs, masks, packed rows."""
