package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
)

func orEmpty(ok func(string) bool) func(string) bool {
	return func(s string) bool { return s == "" || ok(s) }
}

func notEmpty(s string) bool { return s != "" }

// isHost accepts an IP, with or without brackets, and what can be a DNS name.
func isHost(s string) bool {
	if net.ParseIP(unbracket(s)) != nil {
		return true
	}
	return s != "" && len(s) <= 253 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	})
}

// isListen accepts host:port; the port may be 0.
func isListen(s string) bool { return isHostPort(s, 0) }

// isTCPEndpoint accepts where ZeroMQ listens: tcp://host:port, or * for the host.
func isTCPEndpoint(s string) bool {
	address, ok := strings.CutPrefix(s, "tcp://")
	return ok && (isListen(address) || isListen(strings.Replace(address, "*", "0.0.0.0", 1)))
}

// isDialable accepts host:port with a port of its own.
func isDialable(s string) bool { return isHostPort(s, 1) }

func isHostPort(s string, lowestPort uint64) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || !isHost(host) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n >= lowestPort
}

// isEndpoint accepts the address of an etcd member, or its URL.
func isEndpoint(s string) bool {
	if !strings.Contains(s, "://") {
		return isDialable(s)
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && isDialable(u.Host)
}

// isCollector accepts the URL of a collector of traces.
func isCollector(s string) bool { return strings.Contains(s, "://") && isEndpoint(s) }

func isAdvertise(s string) bool {
	_, _, ok := splitAdvertise(s)
	return ok
}

// splitAdvertise takes "", host or host:port apart. It reports false for
// anything else, and for an address that nobody can dial.
func splitAdvertise(s string) (host, port string, ok bool) {
	switch {
	case s == "":
		return "", "", true
	case isHost(s):
		host = unbracket(s)
	case isDialable(s):
		host, port, _ = net.SplitHostPort(s)
	default:
		return "", "", false
	}
	return host, port, !unspecified(host)
}

// isSegment accepts what can be one part of an etcd key.
func isSegment(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

// isPrefix accepts what can begin an etcd key: segments, each after a slash.
func isPrefix(s string) bool {
	return strings.HasPrefix(s, "/") && s != "/" && path.Clean(s) == s && isSegment(strings.ReplaceAll(s, "/", ""))
}

// overlap reports whether two listeners would get into each other's way: one of
// all interfaces takes its port on each of them.
func overlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || unspecified(hostA) || unspecified(hostB))
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// unspecified reports whether the host stands for all interfaces.
func unspecified(host string) bool {
	ip := net.ParseIP(unbracket(host))
	return ip != nil && ip.IsUnspecified()
}

func unbracket(s string) string {
	return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
}

func hostPort(host string, port int) string {
	return net.JoinHostPort(unbracket(host), strconv.Itoa(port))
}

// interfaceAddress returns the first IPv4 address of a network interface.
func interfaceAddress(name string) (string, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return "", fmt.Errorf("must be the name of a network interface of this machine: %w", err)
	}
	addresses, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("has no addresses: %w", err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("must have an IPv4 address; give rpc_address for others")
}
