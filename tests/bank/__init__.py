"""The gateway to the bank, tried on the sandbox bank over real HTTP; `sandbox` is for other tests, too."""
