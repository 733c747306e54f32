"""`python -m model_server.accuracy`: calls and speed of each quantisation, flash attention on and off, as a table.

Takes minutes a variant, so it is no part of the tests.
"""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from model_server import machine, models
from model_server.accuracy.asking import Outcome, outcome
from model_server.accuracy.cases import CASES
from model_server.accuracy.variants import QUANTISATIONS, Variant, variants
from model_server.errors import ModelServerError
from model_server.gguf import read_header
from model_server.loading import Settings, matrix_unit_works, require_llama
from model_server.models import Chosen
from model_server.scheduler import Limits

LIMITS = Limits(cells=8192, sequences=4, kept=8, queue=len(CASES))
KINDS = tuple(dict.fromkeys(case.kind for case in CASES))


def main(
    quantisations: Annotated[str, typer.Option(help="With commas between.")] = ",".join(QUANTISATIONS),
    flash_attention: Annotated[bool | None, typer.Option(help="Default: both on and off.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: the physical cores.")] = None,
    replies: Annotated[bool, typer.Option(help="Show also each reply that is wrong.")] = False,
) -> None:
    """Ask the prompts of each quantisation, and print the table in Markdown."""
    threads = threads or machine.physical_cores()
    try:
        require_llama()
        with tempfile.TemporaryDirectory(prefix="accuracy-") as scratch:
            chosen = variants(quantisations.split(","), models.cache_folder(), Path(scratch), _say)
            wanted = [each for each in chosen if flash_attention in (None, each.flash_attention)]
            rows = [(variant, _measured(variant, threads)) for variant in wanted]
            typer.echo(table(rows, threads, repacked=matrix_unit_works(chosen[0].path)))
    except ModelServerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if replies:
        typer.echo("\n".join(wrong_replies(rows)))


def _say(words: str) -> None:
    typer.echo(words, err=True)


def _measured(variant: Variant, threads: int) -> Outcome:
    _say(f"asking {len(CASES)} prompts of {variant.path.name}, flash attention {on_off(variant)}")
    settings = Settings(limits=LIMITS, threads=threads, flash_attention=variant.flash_attention)
    chosen = Chosen(variant.path.stem, variant.path, read_header(variant.path), None)
    return asyncio.run(outcome(chosen, settings, CASES))


# ── what is printed ───────────────────────────────────────────────────────────────────────────────────────────────────


def table(rows: Sequence[tuple[Variant, Outcome]], threads: int, *, repacked: bool) -> str:
    asked = ", ".join(f"{sum(case.kind == kind for case in CASES)} {kind}" for kind in KINDS)
    packing = "weights repacked for the processor" if repacked else "weights not repacked"
    day = datetime.now(UTC).date().isoformat()
    headings = ["weights", "flash attention", "correct", "valid", *KINDS, "prefill tok/s", "decode tok/s"]
    return "\n".join(
        [
            f"{len(CASES)} prompts ({asked}), greedy; {os.cpu_count()} cores, {threads} threads, {packing}; {day}.",
            "",
            _row(headings),
            _row(["---", "---", *["---:"] * (len(headings) - 2)]),
            *(_row(_cells(variant, measured)) for variant, measured in rows),
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(variant: Variant, measured: Outcome) -> list[str]:
    scores = [reply.score for reply in measured.replies]
    correct_of = [sum(each.score.correct for each in measured.replies if each.case.kind == kind) for kind in KINDS]
    return [
        f"{variant.quantisation} ({variant.origin})",
        on_off(variant),
        str(sum(each.correct for each in scores)),
        str(sum(each.valid for each in scores)),
        *map(str, correct_of),
        f"{measured.speed.prefill_tokens_per_second:.0f}",
        f"{measured.speed.decode_tokens_per_second:.0f}",
    ]


def on_off(variant: Variant) -> str:
    return "on" if variant.flash_attention else "off"


def wrong_replies(rows: Sequence[tuple[Variant, Outcome]]) -> list[str]:
    lines: list[str] = []
    for variant, measured in rows:
        lines.append(f"\n{variant.path.name}, flash attention {on_off(variant)}:")
        for reply in measured.replies:
            if not reply.score.correct:
                made = "; ".join(f"{call.name} {call.arguments}" for call in reply.made)
                lines.append(f"- {reply.case.prompt!r} ({reply.case.choice}): {made or reply.content!r}")
    return lines


if __name__ == "__main__":
    typer.run(main)
