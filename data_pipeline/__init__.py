"""Text to tokens to batches: the whole data path on the host, up to the accelerator.

Nothing here imports jax or `bert_jax`, and this module imports nothing at all, so that
`data_pipeline.config` stays cheap for programs that only want the settings.
"""
