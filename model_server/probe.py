"""Computes a few tokens with a model, in a process that may die of it: `python -m model_server.probe PATH`."""

import sys
from pathlib import Path

from model_server.engine import Engine, Options
from model_server.loading import warm_up


def main(path: str) -> None:
    options = Options(context=256, lines=1, batch_tokens=64, threads=1)
    engine = Engine(Path(path), options)
    warm_up(engine)
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
