package app

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// JavaScript and jq read numbers as float64: a larger one than 2^53 must be a string.
func TestNoLargeNumbersInEvents(t *testing.T) {
	for _, c := range eventsOfEachKind() {
		eachLeaf(reflect.ValueOf(c), "", func(_ string, v reflect.Value) {
			switch {
			case v.Type() == reflect.TypeFor[deleteevents.Type](): // it decides which fields there are
			case v.CanInt():
				v.SetInt(math.MaxInt64)
			case v.CanUint():
				v.SetUint(math.MaxUint64 >> (64 - v.Type().Bits()))
			}
		})
		names := []metadata.SegmentName{{Number: math.MaxUint32, Name: "n", ID: segment.ID{1}}}
		e := eventWith(journal.Stamp{}, c, names)
		for _, number := range regexp.MustCompile(`[:,\[](-?[0-9][0-9.e+]*)`).FindAllStringSubmatch(e.GetJson(), -1) {
			if n := json.Number(number[1]); mustFloat(t, n) > 1<<53 {
				t.Errorf("%s has the number %s, want none above 2^53: %s", e.GetType(), n, e.GetJson())
			}
		}
	}
}

func mustFloat(t *testing.T, n json.Number) float64 {
	t.Helper()
	f, err := n.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// All that the journal has of an event is in its JSON, but what is internal.
func TestEventsAreWhole(t *testing.T) {
	internal := []string{
		"Shard",   // where this version looks for the object
		"Peer",    // these three are not in the journal
		"Removed", //
		"Lost",    //
	}
	shown := map[string]bool{} // by kind and field
	for i, c := range eventsOfEachKind() {
		before := eventMessage(journal.Stamp{}, c, nil)
		leaves := 0
		eachLeaf(reflect.ValueOf(c), "", func(string, reflect.Value) { leaves++ })
		for leaf := range leaves {
			changed, n, path := eventsOfEachKind()[i], 0, reflect.TypeOf(c).String()
			eachLeaf(reflect.ValueOf(changed), path, func(at string, v reflect.Value) {
				if n == leaf {
					path = at
					change(v)
				}
				n++
			})
			after := eventMessage(journal.Stamp{}, changed, nil)
			shown[path] = shown[path] || after.GetType() != before.GetType() || after.GetJson() != before.GetJson()
		}
	}
	for path, ok := range shown {
		field := path[strings.LastIndex(path, ".")+1:]
		if hidden := slices.Contains(internal, field); ok == hidden {
			t.Errorf("%s is in the JSON: %v, want %v", path, ok, !hidden)
		}
	}
	if len(shown) < 100 {
		t.Errorf("found %d fields, want all, which are more than 100", len(shown))
	}
}

// eachLeaf visits the exported fields within a value, and of lists the first elements.
func eachLeaf(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		eachLeaf(v.Elem(), path, visit)
	case reflect.Slice:
		if v.Len() > 0 {
			eachLeaf(v.Index(0), path, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				eachLeaf(v.Field(i), path+"."+f.Name, visit)
			}
		}
	default:
		visit(path, v)
	}
}

// change gives a field another value.
func change(v reflect.Value) {
	switch {
	case v.CanInt():
		v.SetInt(v.Int() + 1_000_000)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.Array: // an id
		v.Index(0).SetUint(v.Index(0).Uint() + 1)
	}
}

// The reference lists the fields of each type of event.
func TestEventsAreDocumented(t *testing.T) {
	const file, head = "../../docs/reference.md", "\n## Events of the journal\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("%s: got no section %q, want one that lists the events", file, strings.TrimSpace(head))
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented, known := map[string]string{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_`, ]+)` \\| (.*) \\|$").FindAllStringSubmatch(section, -1) {
		for _, kind := range strings.Split(row[1], "`, `") {
			documented[kind] = row[2]
		}
	}
	for _, c := range eventsOfEachKind() {
		e := eventWith(journal.Stamp{}, c, []metadata.SegmentName{{Name: "n"}})
		var content any
		if err := json.Unmarshal([]byte(e.GetJson()), &content); err != nil {
			t.Fatal(err)
		}
		there, listed := map[string]bool{}, map[string]bool{}
		fieldsOf(content, there)
		for _, name := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(documented[e.GetType()], -1) {
			listed[name[1]] = true
		}
		if !maps.Equal(there, listed) {
			t.Errorf("%s lists for %s the fields %v, want %v", file, e.GetType(), slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(there)))
		}
		known[e.GetType()] = true
	}
	for kind := range documented {
		if !known[kind] {
			t.Errorf("%s: got an event %s listed, want only types of events that the journal has", file, kind)
		}
	}
}

// fieldsOf collects the names of all fields within a JSON value.
func fieldsOf(content any, names map[string]bool) {
	switch v := content.(type) {
	case []any:
		for _, one := range v {
			fieldsOf(one, names)
		}
	case map[string]any:
		for name, one := range v {
			names[name] = true
			fieldsOf(one, names)
		}
	}
}
