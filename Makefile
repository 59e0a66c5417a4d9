# `make check` and `make test` are what CI runs. Each target says what it does under `make help`.

GO ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 1m
BENCH ?= .
PKG ?= ./...
SOAK ?= 10m

# Starts PostgreSQL, PgBouncer and MinIO, and runs a command that finds them: docs/testing.md.
SERVERS := $(GO) run ./internal/testserver/run --

.PHONY: help check test race sim soak servers fuzz bench
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## gofmt, go vet, staticcheck and the layering check
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w is due for:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test -count=1 ./internal/layers

test: ## the tests of PKG (all), against real servers that it starts
	$(SERVERS) $(GO) test -timeout 30m $(PKG)

race: ## the tests of PKG (all) under the race detector, against the same servers
	$(SERVERS) $(GO) test -race -timeout 60m $(PKG)

sim: ## the simulation (docs/simulation.md) with new seeds, until one fails or Ctrl-C
	$(GO) test -count=1 -timeout 0 -v -run '^TestSimulation$$' ./internal/sim -sim.forever

soak: ## ten minutes of faults and kills on every backend, SOAK=10m
	$(SERVERS) $(GO) test -count=1 -timeout 120m -v -run TestSoak ./internal/stores -soak $(SOAK)

servers: ## the servers alone, until Ctrl-C: prints what to export for go test
	@$(GO) run ./internal/testserver/run

# Every fuzz target there is, one after the other: go test takes one at a time.
fuzz: ## every fuzz target for FUZZTIME (1m)
	@set -e; for pkg in $$($(GO) list ./...); do \
		list=$$($(GO) test -list '^Fuzz' $$pkg); \
		for target in $$(echo "$$list" | grep '^Fuzz' || true); do \
			echo "$(GO) test -run '^$$' -fuzz '^$$target$$' -fuzztime $(FUZZTIME) $$pkg"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

bench: ## the benchmarks that BENCH names (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...
