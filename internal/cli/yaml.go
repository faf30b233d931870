package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
)

// writeYAML writes a value as encoding/json sees it, as YAML. A library for this
// would add half a megabyte to the program.
func writeYAML(w io.Writer, v any) error {
	var text, out bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	d := json.NewDecoder(&text)
	d.UseNumber()
	value, err := ordered(d)
	if err != nil {
		return err
	}
	block(&out, value, "")
	_, err = w.Write(out.Bytes())
	return err
}

// A field is one of a JSON object, whose order counts for people.
type field struct {
	name  string
	value any
}

// ordered reads a JSON value: []field, []any or a scalar.
func ordered(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		fields := []field{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := ordered(d)
			if err != nil {
				return nil, err
			}
			fields = append(fields, field{name.(string), value})
		}
		_, err = d.Token()
		return fields, err
	case json.Delim('['):
		items := []any{}
		for d.More() {
			item, err := ordered(d)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err = d.Token()
		return items, err
	}
	return token, nil
}

// block writes a value whose first line is indented already.
func block(out *bytes.Buffer, v any, indent string) {
	switch v := v.(type) {
	case []field:
		for i, f := range v {
			if i > 0 {
				out.WriteString(indent)
			}
			out.WriteString(scalar(f.name) + ":")
			if nested(f.value) {
				out.WriteString("\n" + indent + "  ")
				block(out, f.value, indent+"  ")
			} else {
				out.WriteString(" " + scalar(f.value) + "\n")
			}
		}
	case []any:
		for i, item := range v {
			if i > 0 {
				out.WriteString(indent)
			}
			out.WriteString("- ")
			block(out, item, indent+"  ")
		}
	}
	if !nested(v) {
		out.WriteString(scalar(v) + "\n")
	}
}

// nested reports whether a value takes lines of its own.
func nested(v any) bool {
	switch v := v.(type) {
	case []field:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return false
}

// plain texts need no quotes, unless they are words that YAML reads as something else.
var (
	plain = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./ -]*[A-Za-z0-9_./-])?$`)
	words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
)

func scalar(v any) string {
	switch v := v.(type) {
	case []field:
		return "{}"
	case []any:
		return "[]"
	case string:
		if plain.MatchString(v) && !slices.Contains(words, strings.ToLower(v)) {
			return v
		}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text) // what JSON writes is YAML
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSpace(text.String())
}
