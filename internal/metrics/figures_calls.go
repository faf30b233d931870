package metrics

import (
	"strings"

	"github.com/understudy-store/understudy/internal/service"
)

// callFigures are what service.Counters counts, under the C++ master's names.
func callFigures() []figure {
	return []figure{
		gauge("master_active_clients", "Clients that are alive; 0 on a node that does not serve.",
			func(s *scrape) float64 { return float64(s.clients) }),
		counter("total_get_nums_", "Keys that were asked for with GetReplicaList, batches included.",
			func(s *scrape) float64 { return float64(s.calls.Gets.Load()) }),
		counter("valid_get_nums_", "Of total_get_nums_, keys that had a readable replica.",
			func(s *scrape) float64 { return float64(s.calls.ValidGets.Load()) }),
		counter("mem_cache_hit_nums_", "Of valid_get_nums_, keys with a replica in memory.",
			func(s *scrape) float64 { return float64(s.calls.MemoryHits.Load()) }),
		counter("mem_cache_hit_bytes_total", "Bytes of the objects that mem_cache_hit_nums_ counts.",
			func(s *scrape) float64 { return float64(s.calls.MemoryHitBytes.Load()) }),
		counter("file_cache_hit_nums_", "Of valid_get_nums_, keys with a replica on disk only.",
			func(s *scrape) float64 { return float64(s.calls.DiskHits.Load()) }),
		counter("file_cache_hit_bytes_total", "Bytes of the objects that file_cache_hit_nums_ counts.",
			func(s *scrape) float64 { return float64(s.calls.DiskHitBytes.Load()) }),
		counter("master_put_start_alloc_failures_total", "Puts that found no room.",
			func(s *scrape) float64 { return float64(s.calls.AllocationFailures.Load()) }),
		counter("master_put_start_partial_allocations_total", "Puts that got fewer replicas than they asked for.",
			func(s *scrape) float64 { return float64(s.calls.PartialAllocations.Load()) }),
		counterBy("type", "understudy_delete_events_total", "Delete events that this node committed, by type.", deletes),
	}
}

// eachCallFigures are the same few figures for each call.
func eachCallFigures() (list []figure) {
	for _, op := range service.Ops() {
		list = append(list, opFigures(op)...)
	}
	return list
}

func deletes(s *scrape, e emit) {
	for _, t := range deleteTypes {
		e(float64(s.calls.Deletes[t].Load()), t.String())
	}
}

func opFigures(op service.Op) []figure {
	of := func(name, help string, value func(*service.OpCounters) int64) figure {
		return counter("master_"+string(op)+"_"+name+"_total", help,
			func(s *scrape) float64 { return float64(value(s.calls.Of(op))) })
	}
	call := string(op)
	list := []figure{
		of("requests", "Calls of "+call+".", func(c *service.OpCounters) int64 { return c.Requests.Load() }),
		of("failures", "Calls of "+call+" that failed; of a batch, those of which every item failed.",
			func(c *service.OpCounters) int64 { return c.Failures.Load() }),
	}
	if !isBatch(op) {
		return list
	}
	return append(list,
		of("partial_successes", "Calls of "+call+" of which some items failed.", func(c *service.OpCounters) int64 { return c.Partial.Load() }),
		of("items", "Items in calls of "+call+".", func(c *service.OpCounters) int64 { return c.Items.Load() }),
		of("failed_items", "Items in calls of "+call+" that failed.", func(c *service.OpCounters) int64 { return c.FailedItems.Load() }),
	)
}

func isBatch(op service.Op) bool { return strings.HasPrefix(string(op), "batch_") }
