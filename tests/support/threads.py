"""Functions that run at once, each in a thread of its own."""

import threading

__all__ = ["run_in_threads"]


def run_in_threads(*works):
    """Run functions at once, each in a thread; raise what one raised."""
    failed = []

    def kept(work):
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=kept, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for ever"
    if failed:
        raise failed[0]
