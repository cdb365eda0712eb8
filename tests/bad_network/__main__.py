"""Plays the game against a running service and prints the counts."""

import argparse

from tests.bad_network.game import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--user", action="append", required=True, help="name:password, twice or more")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    users = [(name, password) for name, _, password in (user.partition(":") for user in arguments.user)]
    for what, times in sorted(
        run(url=arguments.url, users=users, seconds=arguments.seconds, seed=arguments.seed).items()
    ):
        print(f"{times:8}  {what}")
