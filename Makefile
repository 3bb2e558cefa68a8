# Everything a person or CI does here. `make` alone prints this help.
.DEFAULT_GOAL := help
SHELL := /bin/bash

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint v2.15.0

.PHONY: help
help: ## print this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

.PHONY: build
build: ## build bin/holdfast (static, stripped)
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/holdfast ./cmd/holdfast

.PHONY: run
run: ## run the example on this machine in ./holdfast-data, until Ctrl-C
	@echo "building bin/holdfast (the first time takes about two minutes)"
	@$(MAKE) --no-print-directory build
	@exec bin/holdfast dev --example --data ./holdfast-data

.PHONY: demo
demo: build ## the same scenario in a scratch folder; ends by itself, fails when a promise is broken
	@exec bin/holdfast demo

.PHONY: cluster-demo
cluster-demo: build ## two servers, two runners, NATS and a MongoDB-API engine on this machine; kills some of them
	@exec scripts/cluster-demo

.PHONY: test
test: ## every test, the conformance suites and the demo
	@scripts/test
	@$(MAKE) --no-print-directory demo

.PHONY: conformance
conformance: ## the conformance suites of the ledger and the record store, on every twin
	@scripts/test ./pkg/capacityledger/... ./pkg/records/... ./pkg/store/...

.PHONY: test-mongo
test-mongo: build ## the MongoDB twin, its witnesses and the cluster, over an engine that scripts/mongo-up fetches and starts
	@HOLDFAST_REQUIRE_MONGO=1 scripts/test ./pkg/store/mongo ./e2e
	@scripts/with-mongo go run ./tools/witness -only "mongo: "

.PHONY: witness
witness: ## take each rule out of the source and demand that its test fails
	@go run ./tools/witness

.PHONY: campaign
campaign: build ## the long forms: histories, faults, crashes, kill loops, races, fuzzing (about 40 minutes); ONE_IN=100 tries each step
	@scripts/campaign $(or $(ONE_IN),1)

.PHONY: campaign-long
campaign-long: build ## ten times the campaign: a night; ONE_IN=1000 tries each step
	@scripts/campaign long $(or $(ONE_IN),1)

.PHONY: bench
bench: ## the benchmarks of docs/performance.md, with their ratios
	@scripts/bench

.PHONY: lint
lint: ## golangci-lint with .golangci.yml
	@$$(scripts/gotool golangci-lint $(GOLANGCI)) run --allow-parallel-runners ./...

.PHONY: verify
verify: build ## formatting, tidy modules, other platforms, binary size
	@scripts/verify
