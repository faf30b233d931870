package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
)

const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30

	// maxDuration keeps sums of a deadline and a duration far from overflow.
	maxDuration = 10 * 365 * 24 * time.Hour
)

// value is one field of a Config as text. All sources speak text, so a value is
// written the same way in a flag, in the environment and in a file.
type value interface {
	// set parses the text into the field. It reports false, and leaves the
	// field alone, for a text that allowed does not describe.
	set(text string) bool
	// String is the field as text; set accepts it.
	String() string
	// kind is the word for the value in a flag's help.
	kind() string
	// allowed completes "must be ...".
	allowed() string
}

type boolean struct{ p *bool }

func (v boolean) set(s string) bool {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false
	}
	*v.p = b
	return true
}
func (v boolean) String() string  { return strconv.FormatBool(*v.p) }
func (v boolean) kind() string    { return boolKind }
func (v boolean) allowed() string { return "true or false" }

// boolKind is the word that makes pflag's help leave out a boolean's value.
const boolKind = "bool"

type port struct{ p *int }

func (v port) set(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return false
	}
	*v.p = int(n)
	return true
}
func (v port) String() string  { return strconv.Itoa(*v.p) }
func (v port) kind() string    { return "port" }
func (v port) allowed() string { return "a port from 0 to 65535; 0 takes a free one" }

// ratio is a share: above 0, or from 0 if zero is set, to 1.
type ratio struct {
	p    *float64
	zero bool
}

func (v ratio) set(s string) bool {
	f, err := strconv.ParseFloat(s, 64)
	// Written so that NaN fails.
	if err != nil || !(f > 0 || v.zero && f == 0) || f > 1 {
		return false
	}
	*v.p = f
	return true
}
func (v ratio) String() string { return strconv.FormatFloat(*v.p, 'f', -1, 64) }
func (v ratio) kind() string   { return "ratio" }
func (v ratio) allowed() string {
	if v.zero {
		return "a number from 0 to 1"
	}
	return "a number above 0 and at most 1"
}

// count is how many of something there are.
type count struct {
	p        *int
	min, max int
}

func (v count) set(s string) bool {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		return false
	}
	*v.p = n
	return true
}
func (v count) String() string  { return strconv.Itoa(*v.p) }
func (v count) kind() string    { return "count" }
func (v count) allowed() string { return fmt.Sprintf("a whole number from %d to %d", v.min, v.max) }

// size is a number of bytes, with or without a unit.
type size struct {
	p        *int64
	min, max int64
}

func (v size) set(s string) bool {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 || int64(n) < v.min || int64(n) > v.max {
		return false
	}
	*v.p = int64(n)
	return true
}
func (v size) String() string { return formatSize(*v.p) }
func (v size) kind() string   { return "size" }
func (v size) allowed() string {
	return fmt.Sprintf("bytes as a number or a size such as 64MiB, from %s to %s", formatSize(v.min), formatSize(v.max))
}

// formatSize writes n exactly, in the largest unit that divides it.
func formatSize(n int64) string {
	switch {
	case n > 0 && n%gib == 0:
		return fmt.Sprintf("%dGiB", n/gib)
	case n > 0 && n%mib == 0:
		return fmt.Sprintf("%dMiB", n/mib)
	case n > 0 && n%kib == 0:
		return fmt.Sprintf("%dKiB", n/kib)
	}
	return strconv.FormatInt(n, 10)
}

// duration is a Go duration from min to maxDuration.
type duration struct {
	p   *time.Duration
	min time.Duration
	// bare is the unit of a number without one; 0 refuses such a number.
	bare time.Duration
	// whole demands whole seconds, in which etcd counts its leases.
	whole bool
}

func (v duration) set(s string) bool {
	d, ok := v.parse(s)
	if !ok || d < v.min || d > maxDuration || v.whole && d%time.Second != 0 {
		return false
	}
	*v.p = d.Truncate(time.Millisecond) // more is not in the journal
	return true
}

func (v duration) parse(s string) (time.Duration, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && v.bare != 0 {
		return time.Duration(n) * v.bare, n >= 0 && n <= int64(maxDuration/v.bare)
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

func (v duration) String() string { return formatDuration(*v.p) }
func (v duration) kind() string   { return "duration" }
func (v duration) allowed() string {
	form := "a duration such as 1m30s"
	switch {
	case v.bare == time.Millisecond:
		form = "milliseconds as a whole number or a duration such as 10s"
	case v.bare == time.Second:
		form = "seconds as a whole number or a duration such as 1m30s"
	case v.whole:
		form = "a duration in whole seconds such as 1m30s"
	}
	return fmt.Sprintf("%s, from %s to %s", form, formatDuration(v.min), formatDuration(maxDuration))
}

// formatDuration drops the zero units at the end: 30m, not 30m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// choice is one of a few words.
type choice[T ~string] struct {
	p  *T
	of []T
}

func oneOf[T ~string](p *T, of ...T) choice[T] { return choice[T]{p, of} }

func (v choice[T]) set(s string) bool {
	if !slices.Contains(v.of, T(s)) {
		return false
	}
	*v.p = T(s)
	return true
}
func (v choice[T]) String() string { return string(*v.p) }
func (v choice[T]) kind() string   { return strings.Join(v.words(), "|") }
func (v choice[T]) allowed() string {
	words := v.words()
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (v choice[T]) words() []string {
	words := make([]string, len(v.of))
	for i, w := range v.of {
		words[i] = string(w)
	}
	return words
}

// text is a string that ok accepts; form describes it. A nil ok accepts all.
type text struct {
	p    *string
	form string
	ok   func(string) bool
}

func (v text) set(s string) bool {
	if v.ok != nil && !v.ok(s) {
		return false
	}
	*v.p = s
	return true
}
func (v text) String() string  { return *v.p }
func (v text) kind() string    { return "string" }
func (v text) allowed() string { return v.form }

// endpoints is a list of etcd members, separated by ';' (as in Mooncake) or ','.
type endpoints struct{ p *[]string }

func (v endpoints) set(s string) bool {
	var list []string
	for e := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ';' || r == ',' }) {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		if !isEndpoint(e) {
			return false
		}
		list = append(list, e)
	}
	*v.p = list
	return true
}
func (v endpoints) String() string { return strings.Join(*v.p, ";") }
func (v endpoints) kind() string   { return "list" }
func (v endpoints) allowed() string {
	return "host:port or http(s)://host:port of each member, separated by ';' or ','"
}

func isEndpoint(s string) bool {
	if !strings.Contains(s, "://") {
		return isHostPort(s, false)
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && isHostPort(u.Host, false)
}

// isHost accepts an IP, with or without brackets, and what can be a DNS name.
func isHost(s string) bool {
	if net.ParseIP(unbracket(s)) != nil {
		return true
	}
	return s != "" && len(s) <= 253 && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	})
}

// isHostPort accepts host:port with a port of its own; zero lets it be 0.
func isHostPort(s string, zero bool) bool {
	host, p, err := net.SplitHostPort(s)
	if err != nil || !isHost(host) {
		return false
	}
	n, err := strconv.ParseUint(p, 10, 16)
	return err == nil && (n > 0 || zero)
}

// splitAdvertise takes "", host or host:port apart. It reports false for
// anything else, and for an address that nobody can dial.
func splitAdvertise(s string) (host, port string, ok bool) {
	switch {
	case s == "":
		return "", "", true
	case isHost(s):
		host = unbracket(s)
	case isHostPort(s, false):
		host, port, _ = net.SplitHostPort(s)
	default:
		return "", "", false
	}
	return host, port, !unspecified(host)
}

// hostOf returns the host of host:port.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// overlap reports whether two listeners would get into each other's way: one of
// all interfaces takes its port on each of them.
func overlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || unspecified(hostA) || unspecified(hostB))
}

// loopback reports whether only this machine can dial the host.
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
