"""Events on their way out, and in at those who consume them.

The table in which a transfer's own transaction leaves its event, the relay that publishes it to Kafka, alerts, and the
kit for consumers. Others may import `outbox.models`, `outbox.services`, `outbox.selectors`, `outbox.alerts`,
`outbox.consumer` and `outbox.stopping`. It knows nothing of money.
"""
