"""Events on their way out: the table in which a transfer's own transaction leaves its event.

Others may import `outbox.models` and `outbox.services`. It knows nothing of money.
"""
