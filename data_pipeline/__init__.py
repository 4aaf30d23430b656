"""Text to tokens to batches: everything that happens before an accelerator sees a number.

Nothing here imports jax or `bert_jax`, and this module imports nothing at all, so that
`data_pipeline.config` stays cheap for programs that only want the settings.
"""
