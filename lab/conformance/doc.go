// Package conformance has the behaviour of the C++ master, line by line, as tests. Each
// line runs against the service itself, and over Mooncake's protocol in each of its
// generations. A line that another test covers names that test. A line that does not
// hold here is listed in docs/divergence.md with the reason.
package conformance
