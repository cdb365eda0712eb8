#!/bin/sh
# Prints a Python 3.11 or later that can make a virtual environment: $PYTHON, or else the newest on the path.
found=
for candidate in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3}; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    found=$candidate
    "$candidate" -c 'import ensurepip, venv' 2>/dev/null || continue
    echo "$candidate"
    exit
done

if [ "$found" ]; then
    echo "error: $found cannot make a virtual environment; on Debian and Ubuntu: apt install $found-venv" >&2
else
    echo "error: no Python 3.11 or later here (tried ${PYTHON:-python3.14 to python3}); name one: make PYTHON=..." >&2
fi
exit 1
