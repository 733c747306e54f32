from hypothesis import given
from hypothesis import strategies as st

from model_server.writing import Writer


def test_a_character_that_is_spread_over_tokens_is_shown_when_it_is_whole() -> None:
    writer = Writer()
    taken = []
    for byte in "é€😀".encode():
        writer.feed(bytes([byte]))
        taken.append(writer.take())

    assert [text for text in taken if text] == ["é", "€", "😀"]


def test_bytes_that_are_no_character_are_replaced_at_the_end() -> None:
    writer = Writer()
    writer.feed(b"a\xe2\x82")
    writer.end()

    assert writer.take() == "a\ufffd"


def test_what_may_become_a_stop_string_is_held_back_and_then_shown() -> None:
    writer = Writer(["STOP", "\n\n"])
    writer.feed(b"one ST")
    assert writer.take() == "one "
    writer.feed(b"AR\n")
    assert writer.take() == "STAR"
    writer.end()
    assert writer.take() == "\n"


def test_the_reply_ends_before_the_first_stop_string() -> None:
    writer = Writer(["STOP", "two"])
    writer.feed(b"one two STOP three")

    assert writer.stopped
    assert writer.take() == "one "


@given(st.text("abcé\n", max_size=40), st.lists(st.text("abé\n", min_size=1, max_size=3), max_size=3), st.data())
def test_however_a_text_is_cut_it_is_shown_up_to_its_first_stop_string(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    writer = Writer(stops)
    shown = ""
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        if not writer.stopped:
            writer.feed(raw[start:end])
            shown += writer.take()
    writer.end()
    shown += writer.take()

    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    if writer.stopped:
        assert shown + min((stop for stop in stops if text[len(shown) :].startswith(stop)), key=len) in text
        assert not any(stop in shown for stop in stops)
    else:
        assert not found
        assert shown == text


def test_a_character_is_found_in_its_token() -> None:
    writer = Writer()
    for piece in (b"So", "é:".encode(), b" {", b"name"):
        writer.feed(piece)

    assert writer.token_at(writer.full.index("{")) == (2, " ")
    assert writer.token_at(0) == (0, "")


def test_bytes_that_are_no_character_shift_no_token() -> None:
    writer = Writer()
    for piece in (b"\xff" * 10, b"\xfe {", b"name"):
        writer.feed(piece)

    assert writer.token_at(writer.full.index("{")) == (1, "\ufffd ")
    assert writer.token_at(writer.full.index("name")) == (2, "")


def test_a_token_that_begins_within_a_character_is_read_from_where_the_character_begins() -> None:
    writer = Writer()
    for piece in (b"So", b"\xc3", b"\xa9 {", b"name"):
        writer.feed(piece)

    assert writer.token_at(writer.full.index("{")) == (1, "é ")


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=12))
def test_whatever_bytes_come_every_character_is_found_in_the_tokens_that_write_it(pieces: list[bytes]) -> None:
    writer = Writer()
    for piece in pieces:
        writer.feed(piece)

    for index in range(len(writer.full)):
        number, before = writer.token_at(index)
        rest = b"".join(pieces[number:]).decode(errors="replace")
        assert rest.startswith(before + writer.full[index])
