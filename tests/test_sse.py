"""What is done about the library for server-sent events."""

from gateway import sse


def test_half_a_character_of_one_stream_does_not_end_up_in_another() -> None:
    one, other = sse.parser(), sse.parser()
    whole = "data: é\n\n".encode()

    begun = list(one.receive_bytes(whole[:7]))  # in the middle of the é
    theirs = list(other.receive_bytes(whole))
    ours = list(one.receive_bytes(whole[7:]))

    assert [event.data for event in (*begun, *theirs, *ours)] == ["é", "é"]
