"""`bert-jax features --model DIR --input FILE --output FILE`: hidden states of texts, in a file."""

from bert_jax.cli.flags.features import Features
from bert_jax.cli.model_source import open_source
from bert_jax.inference.bert import Bert
from bert_jax.inference.feature_files import check_output, write_features
from data_pipeline.directories import directory_of
from data_pipeline.errors import UserError


def run(args: Features) -> None:
    """Writes the file, then prints how many texts were cut."""
    try:
        layers = tuple(int(number) for number in args.layers.split(","))
    except ValueError:
        raise UserError(f"--layers is {args.layers!r}; write numbers with commas: --layers=-1,-2") from None
    check_output(args.output)
    if not args.input.is_file():
        raise UserError(f"{args.input} is not a file; --input takes a text file, one text per line")
    model = Bert(open_source(args.source))
    with directory_of(args.output):
        counts = write_features(model, args.input, layers, args.pooling, args.output)
    if counts["cut"]:
        longest = model.pretrained.config.max_position_embeddings
        print(f"warning: {counts['cut']} of {counts['texts']} texts were cut to {longest} tokens")
    print(f"wrote {args.output}: layers {args.layers} of {counts['texts']} texts")
