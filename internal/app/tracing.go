package app

import (
	"fmt"

	"github.com/understudy-store/understudy/internal/app/tracing"
	"github.com/understudy-store/understudy/journal"
)

// openTracing connects to the collector of traces, if the settings name one.
func (a *App) openTracing() (err error) {
	if a.cfg.Debug.TraceEndpoint == "" {
		return nil
	}
	a.tracing, err = tracing.New(tracing.Config{
		Endpoint: a.cfg.Debug.TraceEndpoint, Ratio: a.cfg.Debug.TraceRatio,
		ClusterID: a.cfg.HA.ClusterID, NodeID: a.cfg.Node.ID, Version: a.version, Log: a.log.With().Str("part", "traces").Logger(),
	})
	if err != nil {
		return fmt.Errorf("--trace-endpoint: %w", err)
	}
	return nil
}

// commitTracer records commits; nil without traces.
func (a *App) commitTracer() journal.Tracer {
	if a.tracing == nil {
		return nil
	}
	return a.tracing
}
