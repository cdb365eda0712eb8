"""A phone on a bad network: a program that knows only docs/mobile.md and the OpenAPI document.

`python -m tests.bad_network --user an:wallet-demo --user binh:wallet-demo` plays it against a running `make run`.
"""
