package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	wire "github.com/understudy-store/understudy/internal/mooncake"
)

const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30

	// maxEtcdBytes is the largest database that etcd recommends.
	maxEtcdBytes = 8 * gib
	// maxDuration keeps sums of a deadline and a duration far from overflow.
	maxDuration = 10 * 365 * 24 * time.Hour
)

// value is one field of a Config as text. All sources speak text, so a value is
// written the same way in a flag, in the environment and in a file.
type value struct {
	// Kind is the word for the value in a flag's help.
	Kind string
	// Allowed completes "must be ...".
	Allowed string
	// set parses the text into the field. It reports false, and leaves the
	// field alone, for a text that Allowed does not describe.
	set func(text string) bool
	// String is the field as text; set accepts it.
	String func() string
	// neutral are the texts that ask for nothing, for a name that is not used.
	neutral []string
}

// bind makes a value of a field: parse reads its text, format writes it.
func bind[T any](field *T, kind, allowed string, parse func(string) (T, bool), format func(T) string) value {
	return value{
		Kind: kind, Allowed: allowed, String: func() string { return format(*field) },
		set: func(text string) bool {
			if kind == "port" || kind == "count" || kind == "size" || kind == "duration" {
				text = decimal(text)
			}
			v, ok := parse(text)
			if ok {
				*field = v
			}
			return ok
		},
	}
}

// decimal writes a hexadecimal number such as 0x10, which gflags reads, as a decimal one. Other
// texts stay.
func decimal(text string) string {
	if digits, hex := strings.CutPrefix(strings.ToLower(text), "0x"); hex {
		if n, err := strconv.ParseUint(digits, 16, 64); err == nil {
			return strconv.FormatUint(n, 10)
		}
	}
	return text
}

// checked parses what can be parsed and passes the check.
func checked[T any](parse func(string) (T, error), check func(T) bool) func(string) (T, bool) {
	return func(s string) (T, bool) {
		v, err := parse(s)
		return v, err == nil && check(v)
	}
}

// within checks that a value lies between two bounds. NaN does not.
func within[T cmp.Ordered](low, high T) func(T) bool {
	return func(v T) bool { return low <= v && v <= high }
}

func anything[T any](T) bool { return true }

// boolKind is the word that makes pflag's help leave out a boolean's value.
const boolKind = "bool"

func boolean(p *bool) value {
	return bind(p, boolKind, "true or false", parseBool, strconv.FormatBool)
}

// parseBool reads what gflags reads.
func parseBool(s string) (v, ok bool) {
	switch strings.ToLower(s) {
	case "true", "t", "yes", "y", "1":
		return true, true
	case "false", "f", "no", "n", "0":
		return false, true
	}
	return false, false
}

func port(p *int) value {
	return bind(p, "port", "a port from 0 to 65535; 0 takes a free one", checked(strconv.Atoi, within(0, 65535)), strconv.Itoa)
}

func count(p *int, low, high int) value {
	allowed := fmt.Sprintf("a whole number from %d to %d", low, high)
	return bind(p, "count", allowed, checked(strconv.Atoi, within(low, high)), strconv.Itoa)
}

func ratio(p *float64) value {
	return bind(p, "ratio", "a number from 0 to 1", checked(parseFloat, within(0.0, 1)), formatFloat)
}

func positiveRatio(p *float64) value {
	positive := within(math.SmallestNonzeroFloat64, 1)
	return bind(p, "ratio", "a number above 0 and at most 1", checked(parseFloat, positive), formatFloat)
}

func rate(p *float64) value {
	positive := within(math.SmallestNonzeroFloat64, 1e6)
	return bind(p, "rate", "a number above 0 and at most 1000000", checked(parseFloat, positive), formatFloat)
}

func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
func formatFloat(f float64) string         { return strconv.FormatFloat(f, 'f', -1, 64) }

// size is a number of bytes, with or without a unit.
func size(p *int64, low, high int64) value {
	allowed := fmt.Sprintf("bytes as a number or a size such as 64MiB, from %s to %s", formatSize(low), formatSize(high))
	parse := func(s string) (int64, bool) {
		n, err := humanize.ParseBytes(s)
		return int64(n), err == nil && within(uint64(low), uint64(high))(n)
	}
	return bind(p, "size", allowed, parse, formatSize)
}

// sizeUpTo is a size that is capped at high: users give the largest 64-bit number for no
// limit.
func sizeUpTo(p *int64, high int64) value {
	v := size(p, 0, high)
	bounded := v.set
	v.Allowed = fmt.Sprintf("bytes as a number or a size such as 64MiB; more than %s counts as that", formatSize(high))
	v.set = func(s string) bool {
		if n, err := strconv.ParseUint(decimal(s), 10, 64); err == nil && n > uint64(high) {
			*p = high
			return true
		}
		return bounded(s)
	}
	return v
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

// duration is a Go duration from low to maxDuration.
func duration(p *time.Duration, low time.Duration) value {
	return span(p, "a duration such as 1m30s", low, "", 1)
}

// autoDuration is a duration above 0, or auto, which is 0.
func autoDuration(p *time.Duration) value {
	parse := func(s string) (time.Duration, bool) {
		if s == auto {
			return 0, true
		}
		return checked(time.ParseDuration, within(1, maxDuration))(s)
	}
	format := func(d time.Duration) string {
		if d == 0 {
			return auto
		}
		return formatDuration(d)
	}
	return bind(p, "duration|auto", "a duration above 0 such as 1m30s, or auto", parse, format)
}

const auto = "auto"

func milliseconds(p *time.Duration) value {
	return span(p, "milliseconds as a whole number or a duration such as 10s", time.Millisecond, "ms", 1)
}

func seconds(p *time.Duration, low time.Duration) value {
	return span(p, "seconds as a whole number or a duration such as 1m30s", low, "s", 1)
}

func wholeSeconds(p *time.Duration, low time.Duration) value {
	return span(p, "a duration in whole seconds such as 1m30s", low, "", time.Second)
}

// span is a multiple of step from low to maxDuration. A number without a unit has unit; if
// unit is empty, it is refused.
func span(p *time.Duration, form string, low time.Duration, unit string, step time.Duration) value {
	parse := func(s string) (time.Duration, bool) {
		if _, err := strconv.Atoi(s); err == nil {
			s += unit
		}
		d, err := time.ParseDuration(s)
		return d.Truncate(time.Millisecond), err == nil && within(low, maxDuration)(d) && d%step == 0 // the journal holds no finer time
	}
	allowed := fmt.Sprintf("%s, from %s to %s", form, formatDuration(low), formatDuration(maxDuration))
	return bind(p, "duration", allowed, parse, formatDuration)
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

func text(p *string, allowed string, check func(string) bool) value {
	return bind(p, "string", allowed, func(s string) (string, bool) { return s, check(s) }, plain)
}

func plain(s string) string { return s }

func oneOf[T ~string](p *T, words ...T) value {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	last := len(list) - 1
	allowed := strings.Join(list[:last], ", ") + " or " + list[last]
	parse := func(s string) (T, bool) { return T(s), slices.Contains(list, s) }
	return bind(p, strings.Join(list, "|"), allowed, parse, func(w T) string { return string(w) })
}

// endpoints is a list of etcd members, written with ';' as in Mooncake.
func endpoints(p *[]string) value {
	parse := func(s string) (string, bool) { return s, isEndpoint(s) }
	return list(p, "host:port or http(s)://host:port of each member, separated by ';' or ','", ";", parse, plain)
}

// joins is a list of nodes, completed with the default port.
func joins(p *[]string) value {
	parse := func(s string) (string, bool) {
		host, port, ok := splitAdvertise(s)
		return net.JoinHostPort(host, cmp.Or(port, strconv.Itoa(pb.DefaultPort))), ok && host != ""
	}
	return list(p, fmt.Sprintf("host or host:port of gRPC of each node, separated by ','; the port is %d if there is none", pb.DefaultPort), ",", parse, plain)
}

func generationListens(p *[]GenerationListen) value {
	parse := func(s string) (GenerationListen, bool) {
		name, address, _ := strings.Cut(s, "=")
		return GenerationListen{name, address}, slices.Contains(wire.Names(), name) && isListen(address)
	}
	format := func(l GenerationListen) string { return l.Generation + "=" + l.Address }
	allowed := "generation=host:port of each port, separated by ','; generations are " + strings.Join(wire.Names(), ", ")
	return list(p, allowed, ",", parse, format)
}

func prefixes(p *[]netip.Prefix) value {
	parse := func(s string) (netip.Prefix, bool) {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), true
		}
		n, err := netip.ParsePrefix(s)
		return n, err == nil && n == n.Masked() && !n.Addr().Is4In6()
	}
	return list(p, "addresses and networks such as 10.0.0.0/8, separated by ','", ",", parse, netip.Prefix.String)
}

func hosts(p *[]string) value {
	parse := func(s string) (string, bool) { return strings.ToLower(s), isHost(s) }
	return list(p, "host names without ports, separated by ','", ",", parse, plain)
}

// list is a list of items. It is read with ';' or ',' between them and written with
// separator. Blank items are ignored.
func list[T any](p *[]T, allowed, separator string, parse func(string) (T, bool), format func(T) string) value {
	parseAll := func(s string) (items []T, ok bool) {
		for text := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ';' || r == ',' }) {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			item, ok := parse(text)
			if !ok {
				return nil, false
			}
			items = append(items, item)
		}
		return items, true
	}
	formatAll := func(items []T) string {
		texts := make([]string, len(items))
		for i, item := range items {
			texts[i] = format(item)
		}
		return strings.Join(texts, separator)
	}
	return bind(p, "list", allowed, parseAll, formatAll)
}
