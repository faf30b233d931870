package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileContent is the content of a file: values, and the lines of the top-level names.
type fileContent struct {
	values map[string]any
	lines  map[string]int
}

var errNoNames = errors.New("must hold names with their values, such as rpc_port: 50051")

// parseYAML reads a YAML file. A second document is an error, since it would be ignored.
// Errors name the line.
func parseYAML(b []byte) (f fileContent, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return f, nil // an empty file
	} else if err != nil {
		return f, err
	}
	var mistyped *yaml.TypeError
	switch err := doc.Decode(&f.values); {
	case errors.As(err, &mistyped) && doc.Content[0].Kind == yaml.MappingNode: // a name that is there twice
		return f, errors.New(strings.Join(mistyped.Errors, "; "))
	case errors.As(err, &mistyped):
		return f, errNoNames
	case err != nil:
		return f, err
	}
	f.lines = map[string]int{}
	for i, n := range doc.Content[0].Content {
		if i%2 == 0 { // names and values alternate
			f.lines[n.Value] = n.Line
		}
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
		return f, nil
	case err != nil:
		return f, err
	}
	return f, fmt.Errorf("line %d: a second document begins, of which nothing would be used; put all settings into one", second.Line)
}

// parseJSON reads a JSON file. A duplicate name is an error, since its first value would be
// ignored. Errors name the line.
func parseJSON(b []byte) (f fileContent, err error) {
	lineAt := func(offset int64) int { return 1 + bytes.Count(b[:offset], []byte("\n")) }
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch err := json.Unmarshal(b, &f.values); {
	case errors.As(err, &syntax):
		return f, fmt.Errorf("line %d: %w", lineAt(syntax.Offset), err)
	case errors.As(err, &mistyped):
		return f, errNoNames
	case err != nil:
		return f, err
	}
	f.lines = map[string]int{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	if _, err := decoder.Token(); err != nil { // the brace that opens it, or null
		return f, err
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return f, err
		}
		name, line := fmt.Sprint(token), lineAt(decoder.InputOffset())
		if first, twice := f.lines[name]; twice {
			return f, fmt.Errorf("line %d: %q is already defined at line %d", line, name, first)
		}
		f.lines[name] = line
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return f, err
		}
	}
	return f, nil
}

// flat joins the names of nested values with dots. No setting has such a name, so it becomes
// a fault whose message shows the place.
func flat(values map[string]any) map[string]any {
	all := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		inner, nested := values[name].(map[string]any)
		if !nested || len(inner) == 0 {
			all[name] = values[name]
		}
		for innerName, v := range flat(inner) {
			all[name+"."+innerName] = v
		}
	}
	return all
}

// asText returns a value from any source as a flag would have it. It reports false for a
// value that no flag can have. A name without a value is empty text. The value may be a list
// only if list says that the setting is one.
func asText(v any, list bool) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case float64: // every number in JSON
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool, int, int64, uint64:
		return fmt.Sprint(v), true
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			part, single := e.(string)
			list = list && single
			parts[i] = part
		}
		if list {
			return strings.Join(parts, ";"), true
		}
	}
	return fmt.Sprint(v), false
}
