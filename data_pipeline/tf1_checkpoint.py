"""TensorFlow checkpoints to and from safetensors, for programs that do not import TensorFlow themselves.

    python -m data_pipeline.tf1_checkpoint read PREFIX FILE
    python -m data_pipeline.tf1_checkpoint write PREFIX FILE

PREFIX is the path of a checkpoint without `.index`. Errors are one line on stderr and status 2.
"""

import os
import sys
from pathlib import Path

from safetensors.numpy import load_file, save_file

from data_pipeline.errors import Unfinished, UserError, may_pass

# An entry of every checkpoint by tf.train.Checkpoint (TensorFlow 2), and of none by TensorFlow 1.
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"


def read_checkpoint(prefix: str, file: Path) -> None:
    """Writes a checkpoint's variables to a safetensors file, without optimizer state and global step.

    Raises:
      UserError: the checkpoint is damaged or incomplete, or was written by TensorFlow 2.
    """
    from data_pipeline.tensorflow_cpu import tf

    try:
        reader = tf.train.load_checkpoint(prefix)
        names = set(reader.get_variable_to_shape_map())
        if _OBJECTS in names:
            raise UserError(
                f"checkpoint {prefix} was written by TensorFlow 2 (Model Garden), with other names of "
                "variables; give one of google-research/bert (TensorFlow 1), or the model in Hugging Face's "
                "form"
            )
        # An optimizer's moments are stored below the name of their variable, such as `.../kernel/adam_m`.
        kept = [n for n in names if n.rpartition("/")[0] not in names and n != "global_step"]
        tensors = {name: reader.get_tensor(name) for name in kept}
    except UserError:
        raise
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        raise UserError(f"checkpoint {prefix} cannot be read: {str(error).splitlines()[0]}") from None
    save_file(tensors, file)


def write_checkpoint(prefix: str, file: Path) -> None:
    """Writes the tensors of a safetensors file as one checkpoint, under their names."""
    from data_pipeline.tensorflow_cpu import tf

    tensors = load_file(file)
    try:
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.constant(array) for array in tensors.values()],
        )
    except tf.errors.OpError as error:
        reason = error.message.rpartition("; ")[2].partition(" [")[0]  # what is left out are internal names
        raise Unfinished(
            f"TensorFlow cannot write the checkpoint ({reason}); run the same command again"
        ) from None


def main(action: str, prefix: str, file: str) -> int:
    """Runs one action and returns the exit status."""
    try:
        {"read": read_checkpoint, "write": write_checkpoint}[action](prefix, Path(file))
    except ModuleNotFoundError as error:
        message, status = f"TensorFlow's checkpoints need {error.name}: pip install tensorflow", 2
    except UserError as error:
        message, status = str(error), os.EX_UNAVAILABLE if may_pass(error) else 2
    else:
        return 0
    print(message, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
