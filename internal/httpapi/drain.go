package httpapi

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// maxDrainBody bounds the request for a drain job, in bytes.
const maxDrainBody = 1 << 20

// drainState is what upstream answers to a request that creates or ends a drain job.
type drainState struct {
	Success bool   `json:"success"`
	Job     string `json:"job_id"`
	Status  string `json:"status"`
	Number  int32  `json:"error_code"`
	Message string `json:"error_message"`
}

func createDrain(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	request := struct {
		Segments    []string `json:"segments"`
		Targets     []string `json:"target_segments"`
		Concurrency uint32   `json:"max_concurrency"`
	}{Concurrency: 4}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxDrainBody)).Decode(&request); err != nil {
		return errs.New(errs.InvalidParams, "", "Invalid JSON body: %v", err)
	}
	id, err := m.CreateDrainJob(r.Context(), metadata.Drain{Segments: request.Segments, Targets: request.Targets, Concurrency: request.Concurrency})
	if err != nil {
		return refusedDrain(err)
	}
	writeJSON(w, http.StatusOK, drainState{Success: true, Job: service.Decimal(id), Status: "CREATED"})
	return nil
}

func cancelDrain(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	if err := m.CancelDrainJob(r.Context(), id); err != nil {
		return refusedDrain(err)
	}
	writeJSON(w, http.StatusOK, drainState{Success: true, Job: service.Decimal(id), Status: "CANCELED"})
	return nil
}

// queryDrain answers how far a drain job has come.
func queryDrain(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	d, err := m.QueryDrainJob(r.Context(), id)
	if err != nil {
		return refusedDrain(err)
	}
	ago := func(ms metadata.Time) int64 {
		return clock.Wall().Add(-time.Duration(ms) * time.Millisecond).UnixMilli()
	}
	writeJSON(w, http.StatusOK, struct {
		Success    bool                 `json:"success"`
		Job        string               `json:"job_id"`
		Type       int32                `json:"type"`
		TypeName   string               `json:"type_name"`
		Status     metadata.DrainStatus `json:"status"`
		StatusName string               `json:"status_name"`
		Created    int64                `json:"created_at_ms_epoch"`
		Updated    int64                `json:"last_updated_at_ms_epoch"`
		Segments   []string             `json:"segments"`
		Succeeded  uint64               `json:"succeeded_units"`
		Failed     uint64               `json:"failed_units"`
		Blocked    int                  `json:"blocked_units"`
		Active     int                  `json:"active_units"`
		Bytes      uint64               `json:"migrated_bytes"`
		Text       string               `json:"message"`
		Number     int32                `json:"error_code"`
		Message    string               `json:"error_message"`
	}{
		Success: true, Job: service.Decimal(id), TypeName: "DRAIN", Status: d.Status, StatusName: d.Status.String(),
		Created: ago(d.SinceCreated), Updated: ago(d.SinceUpdated), Segments: d.Segments,
		Succeeded: d.Succeeded, Failed: d.Failed, Blocked: d.Blocked, Active: d.Active, Bytes: d.Bytes, Text: d.Message,
	})
	return nil
}

// refusedDrain gives an error upstream's status where it is not that of other calls.
func refusedDrain(err error) error {
	if errs.KindOf(err) == errs.Unavailable {
		return statusError{err, http.StatusConflict}
	}
	return err
}

// jobID reads the id of a job as upstream writes it: two numbers.
func jobID(r *http.Request) (id metadata.TaskID, err error) {
	text, err := param(r, "job_id")
	if err != nil {
		return id, err
	}
	high, low, found := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(high, 10, 64)
	b, err2 := strconv.ParseUint(low, 10, 64)
	if !found || err1 != nil || err2 != nil {
		return id, errs.New(errs.InvalidParams, "", "Missing or invalid job_id")
	}
	binary.BigEndian.PutUint64(id[:8], a)
	binary.BigEndian.PutUint64(id[8:], b)
	return id, nil
}
