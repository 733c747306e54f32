"""What Prometheus reads. Base units, bounded labels, and every series there from the start."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from model_server.jobs import Snapshot
from model_server.replies import Answer

OUTCOMES = ("stop", "length", "tool_calls", "cancelled", "refused", "queue_full", "failed")
_TTFT = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
_RATES = (1, 2, 5, 10, 20, 40, 60, 80, 120, 160, 240, 320, 640, 1280)


class Metrics:
    def __init__(self, cell_bytes: int, cells_max: int) -> None:
        self.registry = CollectorRegistry()
        self._cell_bytes = cell_bytes
        self._seen = (0, 0)  # cells evicted and requests preempted, which the model's thread counts
        self._count()
        self._measure()
        self.cache_bytes_max.set(cells_max * cell_bytes)

    def _count(self) -> None:
        self.requests = self._counter("requests", "Replies by how they ended.", "outcome")
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts, cached ones too.")
        self.cached_tokens = self._counter("cached_tokens", "Tokens of prompts that were found in the cache.")
        self.generated_tokens = self._counter("generated_tokens", "Tokens of replies.")
        self.tool_calls = self._counter("tool_calls", "Calls read from replies.")
        self.batches = self._counter("batches", "Batches computed.")
        self.batches_failed = self._counter("batches_failed", "Batches that llama.cpp refused.")
        self.computed_tokens = self._counter("computed_tokens", "Tokens computed in all batches.")
        self.evicted_cells = self._counter("evicted_cells", "Cells of idle sequences given to others.")
        self.preemptions = self._counter("preemptions", "Requests sent back to the queue for want of cells.")
        for outcome in OUTCOMES:
            self.requests.labels(outcome)

    def _measure(self) -> None:
        self.ready = self._gauge("ready", "1 when the weights are loaded.")
        self.queue_length = self._gauge("queue_length", "Requests that wait.")
        self.sequences_active = self._gauge("sequences_active", "Requests at work.")
        self.sequences_kept = self._gauge("sequences_kept", "Idle sequences whose tokens are cached.")
        self.cache_bytes = self._gauge("cache_bytes", "Bytes of the cells in use.")
        self.cache_bytes_max = self._gauge("cache_bytes_max", "Bytes of all cells.")
        self.first_token_seconds = self._histogram("time_to_first_token_seconds", "From request to first token.", _TTFT)
        self.queue_seconds = self._histogram("queue_seconds", "From request to its first batch.", _TTFT)
        self.prefill_rate = self._histogram("prefill_tokens_per_second", "Of one prompt's uncached tokens.", _RATES)
        self.decode_rate = self._histogram("decode_tokens_per_second", "Of one reply.", _RATES)

    def observe(self, snapshot: Snapshot) -> None:
        """After each batch."""
        self.queue_length.set(snapshot.waiting)
        self.sequences_active.set(snapshot.working)
        self.sequences_kept.set(snapshot.lines_kept)
        self.cache_bytes.set(snapshot.cells_in_use * self._cell_bytes)
        self.batches.inc(bool(snapshot.batch_tokens))
        self.batches_failed.inc(snapshot.batch_failed)
        self.computed_tokens.inc(0 if snapshot.batch_failed else snapshot.batch_tokens)
        evicted, preempted = self._seen
        self.evicted_cells.inc(snapshot.cells_evicted - evicted)
        self.preemptions.inc(snapshot.preemptions - preempted)
        self._seen = (snapshot.cells_evicted, snapshot.preemptions)

    def answered(self, answer: Answer) -> None:
        usage, timings = answer.usage, answer.timings
        self.requests.labels(answer.finish).inc()
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.cached_tokens.inc(usage.prompt_tokens_details.cached_tokens)
        self.generated_tokens.inc(usage.completion_tokens)
        self.tool_calls.inc(len(answer.calls))
        self.first_token_seconds.observe(timings.ttft_ms / 1000)
        self.queue_seconds.observe(timings.queue_ms / 1000)
        if timings.prefill_tokens_per_second:
            self.prefill_rate.observe(timings.prefill_tokens_per_second)
        if timings.decode_tokens_per_second:
            self.decode_rate.observe(timings.decode_tokens_per_second)

    def ended(self, outcome: str) -> None:
        """A request that has no answer."""
        self.requests.labels(outcome).inc()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"model_server_{name}_total", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"model_server_{name}", about, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"model_server_{name}", about, registry=self.registry, buckets=buckets)
