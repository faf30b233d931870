package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
)

// writeYAML writes a value as YAML, with the fields that encoding/json would write. A library
// for this would add half a megabyte to the program.
func writeYAML(w io.Writer, v any) error {
	var text, out bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	d := json.NewDecoder(&text)
	d.UseNumber()
	first, err := d.Token()
	if err == nil {
		err = block(&out, d, first, "")
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out.Bytes())
	return err
}

// block writes the value that begins with a token of JSON. Its first line is indented already.
func block(out *bytes.Buffer, d *json.Decoder, first json.Token, indent string) error {
	if !nested(d, first) {
		out.WriteString(scalar(first))
		if _, empty := first.(json.Delim); empty {
			first, err := d.Token()
			if err != nil {
				return err
			}
			out.WriteString(scalar(first))
		}
		out.WriteString("\n")
		return nil
	}
	for i := 0; d.More(); i++ {
		if i > 0 {
			out.WriteString(indent)
		}
		token, err := d.Token()
		if err != nil {
			return err
		}
		if first == json.Delim('[') {
			out.WriteString("- ")
		} else {
			out.WriteString(scalar(token) + ":")
			if token, err = d.Token(); err != nil {
				return err
			}
			if nested(d, token) {
				out.WriteString("\n" + indent + "  ")
			} else {
				out.WriteString(" ")
			}
		}
		if err := block(out, d, token, indent+"  "); err != nil {
			return err
		}
	}
	_, err := d.Token() // the bracket that ends it
	return err
}

// nested reports whether the value that begins with a token takes lines of its own.
func nested(d *json.Decoder, first json.Token) bool {
	_, opens := first.(json.Delim)
	return opens && d.More()
}

// plain texts need no quotes, unless they are words that YAML reads as something else.
var (
	plain = regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./ -]*[A-Za-z0-9_./-])?$`)
	words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
)

func scalar(v any) string {
	switch v := v.(type) {
	case json.Delim:
		return v.String()
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
