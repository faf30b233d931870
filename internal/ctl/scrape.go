package ctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A scrape is the metrics of a node: name and labels, as they stand in the answer, to
// value. Nil has none.
type scrape map[string]float64

func (n *node) scrape(ctx context.Context) (scrape, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, text, err := n.http(ctx, "Metrics", http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers with status %d", status)
	}
	s := make(scrape)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if value, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil {
			s[lines.Text()[:at]] = value
		}
	}
	return s, nil
}

func (s scrape) sum(names ...string) (total float64) {
	for series, value := range s {
		if name, _, _ := strings.Cut(series, "{"); slices.Contains(names, series) || slices.Contains(names, name) {
			total += value
		}
	}
	return total
}

// slower returns which part of what a histogram without labels counts took longer than
// a bound, as far as its buckets tell.
func (s scrape) slower(name string, bound float64) float64 {
	count, within := s[name+"_count"], 0.0
	for series, value := range s {
		text, ok := strings.CutPrefix(series, name+`_bucket{le="`)
		if !ok {
			continue
		}
		if le, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64); err == nil && le <= bound {
			within = max(within, value)
		}
	}
	if count == 0 {
		return 0
	}
	return 1 - within/count
}
