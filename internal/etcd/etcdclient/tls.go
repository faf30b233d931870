package etcdclient

import "strings"

// secure reports whether all endpoints are reached over TLS by a client that has it.
func secure(endpoints []string) bool {
	for _, e := range endpoints {
		if scheme, _, found := strings.Cut(e, "://"); found && scheme != "https" {
			return false
		}
	}
	return true
}
