package config

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"
)

// lineParser is a koanf parser that remembers on which line each name stands.
type lineParser struct {
	koanf.Parser
	json  bool
	lines map[string]int
}

// Unmarshal parses a file; its errors name the line.
func (p *lineParser) Unmarshal(b []byte) (map[string]any, error) {
	p.lines = nameLines(b)
	m, err := p.Parser.Unmarshal(b)
	var syntax *stdjson.SyntaxError
	var jsonShape *stdjson.UnmarshalTypeError
	var yamlShape *yaml.TypeError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("line %d: %w", lineAt(b, syntax.Offset), err)
	case p.lines == nil && errors.As(err, &yamlShape), errors.As(err, &jsonShape):
		return nil, errors.New("must hold names with their values, such as rpc_port: 50051")
	case errors.As(err, &yamlShape): // a name that is there twice
		return nil, errors.New(strings.Join(yamlShape.Errors, "; "))
	case err != nil:
		return nil, err
	}
	return m, p.whole(b)
}

// whole returns an error if the parser has dropped a part of the file without a
// word: koanf's take the first document of a YAML file, and of a name that is
// twice in a JSON file the last value.
func (p *lineParser) whole(b []byte) error {
	if p.json {
		return repeatedName(b)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil {
		return nil //nolint:nilerr // an empty file; what is wrong with others has been said
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("line %d: a second document begins, of which nothing would be used; put all settings into one", second.Line)
}

// repeatedName returns an error if a name is twice at the top of a valid JSON
// file.
func repeatedName(b []byte) error {
	decoder := stdjson.NewDecoder(bytes.NewReader(b))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	lines := map[any]int{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		line := lineAt(b, decoder.InputOffset())
		if first, twice := lines[name]; twice {
			return fmt.Errorf("line %d: %q is already defined at line %d", line, name, first)
		}
		lines[name] = line
		var value stdjson.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

// lineAt returns the number of the line that an offset is in.
func lineAt(b []byte, offset int64) int { return 1 + bytes.Count(b[:offset], []byte("\n")) }

// line is where the name stands, or 0. A name inside another, which no setting
// is, stands where the outer one does.
func (p *lineParser) line(name string) int {
	outer, _, _ := strings.Cut(name, ".")
	return p.lines[outer]
}

// nameLines finds the lines of the names at the top of a YAML file, or of a JSON
// file, which is YAML too unless it is indented in some unusual way. It is there
// for messages only: what it cannot read it leaves out.
func nameLines(b []byte) map[string]int {
	var doc yaml.Node
	if yaml.Unmarshal(b, &doc) != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	lines := map[string]int{}
	// The content of a mapping alternates between names and values.
	for i, n := range doc.Content[0].Content {
		if i%2 == 0 {
			lines[n.Value] = n.Line
		}
	}
	return lines
}

// asText writes a value from any source as its flag would have it. It reports
// false for a value that no flag can have. A name without a value is empty text.
// Only for a setting that is a list may the value be one.
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
