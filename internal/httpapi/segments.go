package httpapi

import (
	"bufio"
	"fmt"
	"net/http"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/escape"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// segments returns the mounted segments, unless this node is fenced. A list of many takes tens
// of MiB, so it needs a place before it is made, until end is called.
func (a API) segments(r *http.Request, m *service.Master) (list []metadata.SegmentStats, end func(), err error) {
	if end, err = a.list(r, m.Store.SegmentCount()); err != nil {
		return nil, nil, err
	}
	list = m.Store.Segments()
	if err := m.Fence(r.Context()); err != nil {
		end()
		return nil, nil, err
	}
	return list, end, nil
}

// allSegments answers with the name of each segment that takes objects, one in a
// line, as upstream. Several segments may share a name.
func (a API) allSegments(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	list, end, err := a.segments(r, m)
	if err != nil {
		return err
	}
	defer end()
	w.Header().Set("Content-Type", figuresType)
	out := bufio.NewWriterSize(w, listBuffer)
	for i := range list {
		if list[i].Status() != metadata.SegmentOK {
			continue
		}
		if _, err := out.WriteString(escape.Name(list[i].Name) + "\n"); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
	}
	_ = out.Flush()
	return nil
}

// querySegment answers how much of the segments of a name is used. For an
// unknown one the answer is 500, as upstream.
func querySegment(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	name, err := param(r, "segment")
	if err != nil {
		return err
	}
	var used, capacity uint64
	found := false
	for s := range m.Store.SegmentsNamed(name) {
		found = true
		used += s.Busy
		capacity += s.Capacity
	}
	if err := m.Fence(r.Context()); err != nil {
		return err
	}
	if !found {
		writeTextAs(w, figuresType, http.StatusInternalServerError, "Failed to query segment")
		return nil
	}
	writeTextAs(w, figuresType, http.StatusOK, fmt.Sprintf("%s\nUsed(bytes): %d\nCapacity(bytes) : %d\n", escape.Name(name), used, capacity))
	return nil
}

// A segmentDetail is one segment in upstream's names.
type segmentDetail struct {
	Name        string  `json:"segment_name"`
	ID          string  `json:"segment_id"`
	Client      string  `json:"client_id"`
	Base        string  `json:"base_address"`
	Size        uint64  `json:"size_bytes"`
	SizeText    string  `json:"size_human"`
	Endpoint    string  `json:"te_endpoint"`
	Protocol    string  `json:"protocol"`
	Status      string  `json:"status"`
	Used        uint64  `json:"allocator_used_bytes"`
	Capacity    uint64  `json:"allocator_capacity_bytes"`
	Percent     float64 `json:"allocator_usage_percent"`
	Quarantined *uint64 `json:"quarantined_bytes,omitempty"` // ours, if API.Extended is set
}

func (a API) segmentsDetail(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	list, end, err := a.segments(r, m)
	if err != nil {
		return err
	}
	defer end()
	before := fmt.Sprintf(`{"total_segments":%d,"segments":[`, len(list))
	return writeList(w, before, list, func(s *metadata.SegmentStats) any { return a.detailOf(s) })
}

func (a API) detailOf(s *metadata.SegmentStats) *segmentDetail {
	d := &segmentDetail{
		Name: s.Name, ID: service.Decimal(s.ID), Client: service.Decimal(s.Client), Base: fmt.Sprintf("0x%x", s.Base), Size: s.Size,
		SizeText: fmt.Sprintf("%.6g GiB", float64(s.Size)/(1<<30)), Endpoint: s.Endpoint, Protocol: s.Protocol, Status: s.Status().String(),
		Used: s.Busy, Capacity: s.Capacity,
	}
	if a.Extended {
		d.Quarantined = &s.Quarantined
	}
	if s.Capacity > 0 {
		d.Percent = 100 * float64(s.Busy) / float64(s.Capacity)
	}
	return d
}

// segmentStatus answers the status of the newest segment of a name.
func segmentStatus(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	name, err := param(r, "segment")
	if err != nil {
		return err
	}
	if name == "" {
		return errs.New(errs.InvalidParams, "", "Missing segment query parameter")
	}
	status, err := m.SegmentStatus(r.Context(), name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, struct {
		Success bool                   `json:"success"`
		Segment string                 `json:"segment"`
		Status  metadata.SegmentStatus `json:"status"`
		Name    string                 `json:"status_name"`
		Number  int32                  `json:"error_code"`
		Message string                 `json:"error_message"`
	}{Success: true, Segment: name, Status: status, Name: status.String()})
	return nil
}
