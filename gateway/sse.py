"""Server-sent events by the library assel, with the one thing mended that it shares between streams."""

from __future__ import annotations

import codecs

import assel


def parser() -> assel.Parser:
    """For one stream. assel keeps one decoder for all of its parsers, so that half a character of one stream would end
    up in another."""
    parser = assel.Parser()
    parser.line_decoder.utf8dec = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return parser
