"""The sandbox bank: a small bank of its own, for development and tests, which can be told to misbehave (docs/bank.md).

    __main__     the process: `python -m wallet_project.dev.bank`
    server       the process as a child of `make run` or of a test
    service      HTTP: sockets, and the faults that are committed on them
    protocol     what the bank answers to us
    control      what the bank is told by somebody who plays with it, or by a test
    behaviours   the words for what it can be told
    course       what becomes of a payment: taken, settled, refused, returned, and told
    teller       does what is due, and sends notices until they are taken
    book         its book, in SQLite

It shares no code with the service that it tries: it reads, counts and signs by itself, so that no fault hides in both.
"""
