package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	err := Write(&b, []Chart{
		{Title: "A < B", X: "connections", Y: "µs", Values: []string{"1", "4", "16"}, Lines: []Line{
			{"get & exist", []float64{10, math.NaN(), 30}}, {"put", []float64{47, 20, 10}},
		}},
		{Title: "latency", Values: []string{"1", "4"}, Log: true, Lines: []Line{{"p99", []float64{30, 3000}}}},
		{Title: "nothing"},
	})
	if err != nil {
		t.Fatal(err)
	}
	circles, texts := 0, make(map[string]bool)
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the chart: got error %v, want XML:\n%s", err, b.String())
		}
		switch x := token.(type) {
		case xml.StartElement:
			if x.Name.Local == "circle" {
				circles++
			}
		case xml.CharData:
			texts[string(x)] = true
		}
	}
	if circles != 7 {
		t.Errorf("%d points, want 7: one is left out", circles)
	}
	for _, want := range []string{"A < B", "get & exist", "connections", "50", "10", "100", "1e+04", "16", "nothing"} {
		if !texts[want] {
			t.Errorf("the chart: got\n%s\nwant the text %q", b.String(), want)
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Errorf("the chart: got\n%s\nwant no NaN and no Inf", b.String())
	}
}

func TestPlaces(t *testing.T) {
	line := Chart{Values: []string{"a", "b"}, Lines: []Line{{"l", []float64{0, 47}}}}
	s := line.scale()
	if s.y(0) != height || s.y(s.high) != 0 || s.high != 50 || s.x(0) != width/4 || s.x(1) != width*3/4 {
		t.Errorf("a linear scale: got %+v with 0 at %v, the highest at %v, want %d and 0, up to 50", s, s.y(0), s.y(s.high), height)
	}
	line.Log, line.Lines = true, []Line{{"l", []float64{20, 3000}}}
	s = line.scale()
	if s.low != 10 || math.Abs(s.high-10_000) > 1e-6 || math.Abs(s.y(100)-height*2.0/3) > 1e-6 || len(s.ticks()) != 4 {
		t.Errorf("a logarithmic scale: got %+v with 100 at %v, ticks %v, want 10 to 10,000 in 4 ticks, 100 a third up", s, s.y(100), s.ticks())
	}
}
