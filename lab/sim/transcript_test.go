package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/clock"
)

// A transcript records what happens, a line per event, with its virtual time.
type transcript struct {
	now clock.Clock

	mu    sync.Mutex // guards all below
	lines []line
}

type line struct {
	at   time.Duration
	who  string
	text string
}

func newTranscript() *transcript { return &transcript{now: clock.Runtime()} }

// note records that somebody does something now.
func (s *transcript) note(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line{s.now(), who, fmt.Sprintf(format, args...)})
}

// String returns the lines in the order of their times.
func (s *transcript) String() string {
	var b strings.Builder
	for _, l := range s.inOrder() {
		fmt.Fprintf(&b, "%7.2fs  %-5s %s\n", l.at.Truncate(resolution).Seconds(), l.who, l.text)
	}
	return b.String()
}

// exact returns the lines with their times to the nanosecond, as they must be
// the same whenever a seed is played.
func (s *transcript) exact() (list []string) {
	for _, l := range s.inOrder() {
		list = append(list, fmt.Sprintf("%v %s %s", l.at, l.who, l.text))
	}
	return list
}

// inOrder returns the lines by time. What several do at one instant has no order
// of its own; it is sorted.
func (s *transcript) inOrder() []line {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := slices.Clone(s.lines)
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.who, b.who))
	})
	return lines
}

// resolution is how exact the times of a transcript are.
const resolution = 10 * time.Millisecond

// logger records a node's log from info on, unless it is muted: the message,
// with some of its fields.
func (s *transcript) logger(id string, muted func() bool) zerolog.Logger {
	return zerolog.New(logged{s, id, muted}).Level(zerolog.InfoLevel)
}

type logged struct {
	*transcript
	id    string
	muted func() bool
}

// storyFields are the fields of a log line that a transcript shows.
var storyFields = []string{"term", "sequence", "to", "reason", "objects"}

// Write takes one line of log.
func (l logged) Write(b []byte) (int, error) {
	if l.muted() {
		return len(b), nil
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		return 0, err
	}
	text := fmt.Sprint(fields["message"])
	var list []string
	for _, name := range storyFields {
		if v, ok := fields[name]; ok {
			list = append(list, fmt.Sprintf("%s %v", name, v))
		}
	}
	if len(list) > 0 {
		text += " (" + strings.Join(list, ", ") + ")"
	}
	l.note(l.id, "%s", text)
	return len(b), nil
}
