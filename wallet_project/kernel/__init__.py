"""What every app may use and no app owns: errors, money, the clock, database helpers, strict JSON.

The only part of `wallet_project` that apps import; it imports no app.
"""
