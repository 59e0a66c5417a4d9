# `make check` and `make test` are what CI runs. Each target says what it does under `make help`.

GO ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 1m
BENCH ?= .

.PHONY: help check test race fuzz bench
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## gofmt, go vet, staticcheck and the layering check
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w is due for:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test -count=1 ./internal/layers

test: ## all tests
	$(GO) test -timeout 30m ./...

race: ## all tests under the race detector
	$(GO) test -race -timeout 60m ./...

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
