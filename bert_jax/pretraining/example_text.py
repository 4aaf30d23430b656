"""What a training example holds, in a form to read."""

from rich.text import Text

from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS
from data_pipeline.pretraining.corpus_source import CorpusSource, Drawn


def example_text(drawn: Drawn, instance: int, source: CorpusSource) -> Text:
    """One sequence in readable form: its label, then the text of each segment."""
    second, end = int(drawn.sequences.second_starts[instance]), int(drawn.sequences.ends[instance])
    pieces = _pieces(drawn, instance, source)
    segments = {"A": pieces[1 : second - 1], "B": pieces[second : end - 1]}
    of_label_1 = {"sentence_order": "B comes before A in the text"}
    relation = of_label_1.get(source.data.pairing, "B comes from another document")
    if not drawn.sequences.labels[instance]:
        relation = "B follows A"
    if second == end:
        segments, relation = {"text": pieces[1 : end - 1]}, "one segment"
    row, number = int(drawn.places.rows[instance]) + 1, int(drawn.places.numbers[instance])
    name = f"example {row}, sequence {number + 1}" if source.instances_per_row > 1 else f"example {row}"
    text = Text.assemble((f"{name}, {end} tokens: {relation}", "bold"))
    for name, segment in segments.items():
        text.append(f"\n{name} ", style="bold cyan")
        for number, piece in enumerate(segment):
            text.append_text(piece[1:] if number == 0 and piece.plain.startswith(" ") else piece)
    return text


def _pieces(drawn: Drawn, instance: int, source: CorpusSource) -> list[Text]:
    """Each token as text, after a space if the text has one there, and marked if it is to be predicted."""
    tokenizer, batch, row = source.corpus.tokenizer, drawn.batch, drawn.places.rows[instance]
    start, end = int(drawn.places.starts[instance]), int(drawn.sequences.ends[instance])
    was = drawn.sequences.input_ids[instance, :end].tolist()
    now = batch["input_ids"][row, start : start + end].tolist()
    predicted = set(batch["masked_lm_positions"][row][batch["masked_lm_weights"][row] > 0].tolist())
    pieces = []
    for position, (before, after) in enumerate(zip(was, now, strict=True), start):
        token = tokenizer.id_to_token(before)
        space = " " if token in SPECIAL_TOKENS or tokenizer.follows_space(token) else ""
        piece = tokenizer.text_of(token)
        if position in predicted:
            mark = f"[{piece}→{'MASK' if after == tokenizer.mask_id else tokenizer.id_to_token(after)}]"
            pieces.append(Text(space).append(mark, style="bold magenta"))
        else:
            pieces.append(Text(space + piece))
    return pieces
