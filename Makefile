# Short names. The checks themselves stand in .ci/run.
TOOL := go tool -modfile=tools/go.mod

.PHONY: build test race lint fmt generate bench demo ci

build: ## the programs, into bin/
	go build -o bin/ ./cmd/...

test race lint:
	.ci/run $@

fmt:
	$(TOOL) golangci-lint fmt

generate: ## Go code from api/**/*.proto
	$(TOOL) buf generate

bench: ## compare two runs with: $(TOOL) benchstat old new
	go test -run='^$$' -bench=. -benchmem ./...

demo:
	go run ./cmd/masterctl demo

ci:
	.ci/run
