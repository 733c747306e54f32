"""A connection that breaks, a gateway that is started again, and one that wants a key."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.async_api import expect

from gateway.edge.auth import ApiKey
from tests.console.driving import Open
from tests.serving import Serve

FULL_KEY = "full-key"
KEYS = {"keys": (ApiKey(key=FULL_KEY), ApiKey(key="read-key", role="read"))}

STREAM = ': hello\r\n\r\nid: 7\r\nevent: turn\r\ndata: {"a":\r\ndata:  1}\r\n\r\ndata:x\n\nid:8\rdata: y\r\r\n'
SPLIT_ANYWHERE = """async (text) => {
  const { Parser } = await import("/console/modules/sse.js");
  const read = (pieces) => {
    const parser = new Parser();
    return JSON.stringify(pieces.flatMap((piece) => parser.push(piece)));
  };
  const whole = read([text]);
  const halves = [...text].map((_, at) => [text.slice(0, at), text.slice(at)]);
  return [JSON.parse(whole), halves.filter((pieces) => read(pieces) !== whole), read([...text]) === whole];
}"""


async def test_events_are_read_the_same_wherever_the_stream_is_cut(open_console: Open, serve: Serve) -> None:
    async with serve() as gateway:
        console = await open_console(gateway)
        events, differs, letters = await console.page.evaluate(SPLIT_ANYWHERE, STREAM)
        await console.close()

    assert events == [
        {"type": "turn", "id": "7", "data": '{"a":\n 1}'},
        {"type": "message", "id": None, "data": "x"},
        {"type": "message", "id": "8", "data": "y"},
    ]
    assert differs == []
    assert letters


async def test_a_restarted_gateway_is_found_again_and_the_run_goes_on(serve: Serve, open_console: Open) -> None:
    async with serve() as gateway:
        run = await gateway.run("destructive")
        listing = await open_console(gateway)
        console = await open_console(gateway, f"#/runs/{run['id']}")
        await console.stopped("approval")
        await console.get("input[name=reason]").fill("half a word")
        port = urlsplit(gateway.url).port
        listing.expect_failures()
        console.expect_failures()

    for each in (listing, console):
        await each.sees("#banner", "reconnecting…")
        await each.sees("#live", "offline")

    async with serve(server={"port": port}) as gateway:
        await gateway.run("once")
        for each in (listing, console):
            await expect(each.get("#banner")).to_be_hidden()
            await each.sees("#live", "live")
        await expect(listing.get("table.runs tbody tr")).to_have_count(2)
        await expect(console.get("input[name=reason]")).to_have_value("half a word")
        await console.button("Approve").click()
        await console.stopped("completed")
        await expect(console.get(".step.started")).to_have_count(1)
        await expect(console.get("details.card")).to_have_count(3)


async def test_a_key_is_asked_for_once_and_kept(serve: Serve, open_console: Open) -> None:
    async with serve(server=KEYS, headers={"Authorization": f"Bearer {FULL_KEY}"}) as gateway:
        await gateway.run("once")
        console = await open_console(gateway)
        console.expect_failures()
        console.errors.clear()
        dialog = console.get("dialog")
        await expect(dialog).to_have_count(1)
        await expect(dialog).to_contain_text("this gateway wants a key")
        await console.page.get_by_label("API key").fill("wrong")
        await console.button("Continue").click()
        await expect(dialog).to_contain_text("the key is not one of this gateway's.")
        await console.page.get_by_label("API key").fill(FULL_KEY)
        await console.page.keyboard.press("Enter")

        await expect(console.row("completed")).to_have_count(1)
        await expect(dialog).to_have_count(0)
        await console.page.reload()
        await expect(console.row("completed")).to_have_count(1)
        await gateway.run("talks")
        await expect(console.row("talks")).to_have_count(1)
