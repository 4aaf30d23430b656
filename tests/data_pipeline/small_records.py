"""TFRecords of google-research/bert's layout, for tests."""

import numpy as np

from data_pipeline.tensorflow_cpu import tf


def make_example(number: int) -> dict[str, list]:
    rng = np.random.default_rng(number)
    return {
        "input_ids": [number, *rng.integers(0, 1000, 15).tolist()],
        "input_mask": [1] * 10 + [0] * 6,
        "segment_ids": [0] * 5 + [1] * 11,
        "masked_lm_positions": [1, 4, 0],
        "masked_lm_ids": rng.integers(0, 70_000, 3).tolist(),
        "masked_lm_weights": [1.0, 1.0, 0.0],
        "next_sentence_labels": [number % 2],
    }


def write_records(path, numbers):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            feature = {
                key: tf.train.Feature(float_list=tf.train.FloatList(value=values))
                if key == "masked_lm_weights"
                else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for key, values in make_example(number).items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
