// Package conformance holds what the C++ master does, line by line, as tests: each
// line runs over the service itself, and over Mooncake's protocol in each of its
// generations. A line that another test shows names that test; one that does not
// hold here stands in docs/divergence.md with its reason.
package conformance
