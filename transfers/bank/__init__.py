"""The bank, as the orders see it: an interface, the one implementation over HTTP, and the signature of its notices.

    gateway        the interface, and what may be concluded from each answer; `gateway()` is the way in
    http_gateway   the bank's protocol over HTTP (docs/bank.md)
    payments       what the bank writes, read strictly
    signature      who sent a notice, and when

Nothing here knows orders, and nothing here touches the database.
"""
