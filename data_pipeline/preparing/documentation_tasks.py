from pathlib import Path


def write_tasks(directory: Path) -> None:
    import random
    from data_pipeline.atomic import atomically

    with atomically(directory) as partial:
        for t in ("package", "neighbours"):
            (partial / t).mkdir(parents=True)
            for sp, n in (("train", 600), ("dev", 200)):
                r = random.Random(t + sp)
                with open(partial / t / f"{sp}.tsv", "w") as f:
                    f.write("text\ttext_b\tlabel\n")
                    for i in range(n):
                        l = r.randint(0, 1)
                        f.write(
                            f"{'the array of numbers' if l else 'a path of files'} {r.randint(0, 9)}\tsome words\t{l}\n"
                        )
