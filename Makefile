# All commands of this project; `make` alone explains them.

.DEFAULT_GOAL := help
.PHONY: help run test check format psql soak openapi kafka kafka-jars reset

BIN := .venv/bin
DEV := $(BIN)/python -m wallet_project.dev
INSTALLED := .venv/.installed

# Further arguments: make test ARGS="-k reversal", make psql ARGS="-c 'TABLE account'"
ARGS ?=
PORT ?= 8000
export PORT PYTHON

# What production is told, for the checks that look at production's settings. They connect to nothing.
PRODUCTION = WALLET_ENV=production SECRET_KEY=$$(head -c 48 /dev/urandom | base64) ALLOWED_HOSTS=wallet.example \
	DATABASE_URL=postgresql://wallet_app@127.0.0.1:1/wallet REDIS_URL=redis://127.0.0.1:1/0 \
	KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:1 BANK_URL=https://127.0.0.1:1 BANK_API_KEY=none BANK_WEBHOOK_SECRETS=none

help: ## these lines
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(INSTALLED) ## everything on this machine, with demo data, on PORT (8000); Ctrl-C stops it
	@exec $(DEV) run

test: $(INSTALLED) ## the whole suite on servers of its own; ARGS go to pytest
	@exec $(DEV) test $(ARGS)

check: $(INSTALLED) ## what continuous integration runs: linters, types, contracts, migrations, then the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	WALLET_ENV=development $(BIN)/mypy .
	$(BIN)/lint-imports
	@# Without a database makemigrations warns that it cannot compare with one; here the code alone counts.
	$(PRODUCTION) $(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING
	@$(MAKE) --no-print-directory test

format: $(INSTALLED) ## format the code, and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

psql: $(INSTALLED) ## psql in the database of the running `make run`; ARGS go to psql
	@exec $(DEV) psql $(ARGS)

soak: $(INSTALLED) ## the races and the chaos alone, with all their rounds
	@exec $(DEV) soak $(ARGS)

kafka: $(INSTALLED) ## Apache Kafka itself (Java 17, Maven) until Ctrl-C; its jars are what some tests need
	@exec $(DEV) kafka

kafka-jars: $(INSTALLED)
	@exec $(DEV) kafka-jars

openapi: $(INSTALLED) ## write docs/openapi.yaml anew, from the code
	WALLET_ENV=development $(BIN)/python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

reset: $(INSTALLED) ## forget all data of `make run`
	@exec $(DEV) reset

$(INSTALLED): requirements.txt requirements-dev.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		python=$$(sh wallet_project/dev/find-python.sh) && echo "Making .venv with $$python" && \
		"$$python" -m venv --clear .venv; }
	@echo "Installing what requirements-dev.txt names"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
