"""Stores what Hugging Face's BERT computes on a small batch, for tests to compare our model with.

    python -m tests.golden.make_model_golden

writes tests/golden/model.npz; needs transformers and torch (extra [parity]). Names in the file:
`weights/...` and `batch/...`, then for each case `CASE/...`: outputs, loss and `CASE/gradient/...`.
"""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "model.npz"
CASES = ("gelu_exact", "gelu_tanh", "ltr")
SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
_ROWS, _LENGTH, _PREDICTIONS = 3, 12, 4


def make_batch() -> dict[str, np.ndarray]:
    """Rows of three lengths with different numbers of predictions; the first is full."""
    random = np.random.default_rng(5)
    lengths = np.array([_LENGTH, 7, 4])[:, None]
    columns = np.arange(_LENGTH)
    mask = (columns < lengths).astype(np.int32)
    weights = (np.arange(_PREDICTIONS) < np.array([4, 2, 1])[:, None]).astype(np.float32)
    return {
        "input_ids": random.integers(1, SIZES["vocab_size"], mask.shape, dtype=np.int32) * mask,
        "input_mask": mask,
        "segment_ids": ((columns > lengths // 2) * mask).astype(np.int32),
        "masked_lm_positions": random.integers(1, 4, weights.shape, dtype=np.int32)
        * weights.astype(np.int32),
        "masked_lm_ids": random.integers(1, SIZES["vocab_size"], weights.shape, dtype=np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": np.array([0, 1, 1], np.int32),
    }


def make_weights() -> dict[str, np.ndarray]:
    """Random weights of every kind, biases and LayerNorms too, so that none can be forgotten."""
    import torch

    torch.manual_seed(7)
    names = dict(_model("gelu_exact").named_parameters())
    return {
        name: (torch.randn(p.shape) * 0.2 + ("LayerNorm.weight" in name)).numpy() for name, p in names.items()
    }


def reference(
    case: str, weights: dict[str, np.ndarray], batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Hidden states, pooled vector, logits, loss and gradients of one case."""
    import torch

    model = _model(case)
    model.load_state_dict(_state(model, weights))
    inputs = {name: torch.tensor(value).long() for name, value in batch.items()}
    outputs = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["input_mask"],
        token_type_ids=inputs["segment_ids"],
        output_hidden_states=True,
    )
    result = {"hidden_states": torch.stack(outputs.hidden_states)}
    if case == "ltr":
        result["mlm_logits"] = outputs.logits[:, :-1]
        real = inputs["input_mask"][:, 1:].float()
        loss = _mean_cross_entropy(result["mlm_logits"], inputs["input_ids"][:, 1:], real)
    else:
        positions = inputs["masked_lm_positions"][..., None].expand(-1, -1, SIZES["vocab_size"])
        result["mlm_logits"] = outputs.prediction_logits.gather(1, positions)
        result["nsp_logits"] = outputs.seq_relationship_logits
        result["pooled"] = model.bert.pooler(outputs.hidden_states[-1])
        weight = torch.tensor(batch["masked_lm_weights"])
        loss = _mean_cross_entropy(result["mlm_logits"], inputs["masked_lm_ids"], weight)
        labels = inputs["next_sentence_labels"]
        loss = loss + torch.nn.functional.cross_entropy(result["nsp_logits"], labels)
    loss.backward()
    gradients = {f"gradient/{name}": p.grad for name, p in model.named_parameters()}
    return {name: t.detach().numpy() for name, t in {**result, "loss": loss, **gradients}.items()}


def _model(case: str):  # type: ignore[no-untyped-def]
    import transformers

    config = transformers.BertConfig(
        **SIZES,
        hidden_act="gelu" if case == "gelu_exact" else "gelu_pytorch_tanh",
        is_decoder=case == "ltr",
    )
    kind = transformers.BertLMHeadModel if case == "ltr" else transformers.BertForPreTraining
    return kind(config).eval()


def _state(model, weights):  # type: ignore[no-untyped-def]
    import torch

    tied = {
        "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": weights["cls.predictions.bias"],
    }
    arrays = {**weights, **tied}
    return {name: torch.tensor(arrays[name]) for name in model.state_dict()}


def _mean_cross_entropy(logits, targets, weights):  # type: ignore[no-untyped-def]
    import torch

    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return (each * weights).sum() / (weights.sum() + 1e-5)


def main() -> None:
    """Computes every case and writes the file."""
    weights, batch = make_weights(), make_batch()
    arrays = {f"weights/{name}": value for name, value in weights.items()}
    arrays |= {f"batch/{name}": value for name, value in batch.items()}
    for case in CASES:
        arrays |= {f"{case}/{name}": value for name, value in reference(case, weights, batch).items()}
    np.savez_compressed(GOLDEN, **arrays)
    print(f"wrote {GOLDEN}, {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
