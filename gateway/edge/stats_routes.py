"""/v1/stats: figures over many runs, from the store."""

from __future__ import annotations

from datetime import timedelta

from aiohttp import web

from gateway.core.ports import Clock, Stats
from gateway.core.statistics import report
from gateway.edge.bodies import json_response, number_param, only_params

DAYS = 30
DAYS_MAX = 366
MOST_EXPENSIVE = 10


class StatsRoutes:
    def __init__(self, stats: Stats, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock

    async def stats(self, request: web.Request) -> web.Response:
        """Whole days in UTC, the last of which is today."""
        only_params(request, frozenset({"days"}))
        days = int(number_param(request, "days", DAYS, least=1, most=DAYS_MAX, whole=True))
        now = self._clock()
        since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
        groups = await self._stats.groups(since)
        spread = await self._stats.spread(since)
        dearest = await self._stats.most_expensive(since, MOST_EXPENSIVE)
        return json_response(report(since, now, groups, spread, dearest))
