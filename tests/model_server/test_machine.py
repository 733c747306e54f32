from model_server.machine import memory_available, physical_cores

TWO_CORES_FOUR_THREADS = "\n\n".join(f"processor\t: {n}\nphysical id\t: 0\ncore id\t\t: {n // 2}" for n in range(4))


def test_hyperthreads_are_not_cores() -> None:
    assert physical_cores(TWO_CORES_FOUR_THREADS) <= 2


def test_where_the_system_says_nothing_every_processor_counts() -> None:
    assert physical_cores("") >= 1


def test_some_memory_is_available() -> None:
    available = memory_available()

    assert available is None or available > 0
