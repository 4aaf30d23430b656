"""A small text in WikiExtractor's form, and what is read from inputs as `prepare` would find them."""

from data_pipeline.preparing.inputs import Source, find_inputs
from data_pipeline.preparing.readers import Document

WIKI = """<doc id="1" url="u" title="Salt &amp; Pepper">
Salt &amp; Pepper

Salt is white. It is old &lt;sic&gt;.
Pepper is black.

</doc>
<doc id="2" url="u" title="Empty">
Empty

</doc>
<doc id="3" url="u" title="Other">
Not the title.
</doc>
"""
WIKI_DOCUMENTS = ["Salt is white. It is old <sic>.\nPepper is black.", "Not the title."]


def read(*inputs: object, **settings: str) -> list[Document]:
    """The documents of some inputs, which are files, directories, globs or names."""
    return list(find_inputs(Source(tuple(map(str, inputs)), **settings)).documents())
