# Short names. The checks themselves stand in .ci/run.
TOOL := go tool -modfile=tools/go.mod

.PHONY: build test race lint vuln fmt generate bench fuzz demo drills race-all hostile soak ci

BIN ?= bin
COMMANDS ?= ./cmd/...
build: ## the programs, or those of COMMANDS, into BIN: static, no paths of this machine in them, no golang.org/x/net/trace, and no DWARF, as in releases
	CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags=-w -o $(BIN)/ $(COMMANDS)

test race lint:
	.ci/run $@

VULNDB ?= https://vuln.go.dev
vuln: ## known vulnerabilities in what the programs call; asks VULNDB (https:// or file://), so it is no step of CI
	$(TOOL) govulncheck -db $(VULNDB) ./cmd/... ./client/...

fmt:
	$(TOOL) golangci-lint fmt

PYTHON_PROTOS = common errors replica object client
generate: ## Go code and the OpenAPI document from api/**/*.proto, and the stubs of the Python client
	$(TOOL) buf generate
	@if command -v protoc >/dev/null; then \
		protoc -Iapi --python_out=clients/python/src --pyi_out=clients/python/src $(PYTHON_PROTOS:%=understudy/v1/%.proto); \
	else echo 'no protoc 21 (apt-get install protobuf-compiler): the stubs of the Python client stay as they are'; fi

bench: ## compare two runs with: $(TOOL) benchstat old new
	go test -run='^$$' -bench=. -benchmem ./...

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME; what they find goes to testdata/fuzz of its package
	@grep -r --include='*_test.go' '^func Fuzz' . | sed 's|/[^/]*:func| |; s|(.*||' | sort | { failed=; while read -r package target; do \
		go test $$package -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=20x </dev/null || failed="$$failed $$package:$$target"; done; \
		test -z "$$failed" || { echo "failed:$$failed"; exit 1; }; }

demo:
	go run ./cmd/lab demo

drills: ## all fault drills in full, more seeds than in CI, then each safeguard left out
	go run ./cmd/lab drill run --all
	go run ./cmd/lab drill run 1 2 3 25 --own-etcd
	go run ./cmd/lab drill run 1 2 3 9 13 15 16 --protocol mooncake
	go test ./lab/sim -run 'Seeds|Replay' -sim.runs=400 -sim.replays=40
	go run ./cmd/lab drill controls
	go test ./lab/sim -run Controls -sim.controls=all
	go test ./lab/mutant -run Controls -mutant.controls=all

race-all: ## all tests of the product under the race detector, with those that CI runs without it
	go test -race -p 1 -parallel 4 -timeout 60m $$(go list ./... | grep -v /lab/) ./lab/netfault

hostile: ## each attack of docs/security.md again: the drill, and the tests that its table names
	go run ./cmd/lab drill run hostile-peers
	go test -count=1 -run "^($$(grep -o '`Test[A-Za-z]*`' docs/security.md | tr -d '`' | sort -u | paste -sd'|'))$$" \
		$$(grep -o '`[a-z/]*`: `Test' docs/security.md | cut -d'`' -f2 | sort -u | sed 's|^|./|')

soak: ## random faults until stopped (Ctrl-C)
	go run ./cmd/lab drill soak

ci:
	.ci/run
