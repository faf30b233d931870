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

// A scrape holds the metrics of a node. A key is the name with its labels, as written in the
// answer. A nil scrape has no metrics.
type scrape map[string]float64

func (n *node) scrape(ctx context.Context) (scrape, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, text, _, err := n.http(ctx, "Metrics", http.MethodGet, "/metrics", nil)
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

// slower returns the share of observations above a bound in a histogram without labels, as
// exactly as its buckets allow.
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
