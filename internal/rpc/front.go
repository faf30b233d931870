package rpc

import (
	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A front is what all services share.
type front struct{ *Config }

// header begins an answer of a term.
func (f *front) header(term metadata.Term) *pb.ResponseHeader {
	return &pb.ResponseHeader{Term: uint64(term), ClusterId: f.ClusterID, NodeId: f.NodeID}
}

// items lists the failures of a batch. A defect among them is logged, once for
// the batch.
func (f *front) items(op string, request uint64, failed []error) []*pb.ItemError {
	items := rpcerr.Items(failed)
	for _, item := range items {
		if item.GetKind() == pb.Kind_KIND_INTERNAL_ERROR {
			f.Log.Error().Str("method", op).Uint64("request_id", request).Uint32("item", item.GetIndex()).Int("failed", len(items)).
				Err(failed[item.GetIndex()]).Msg("an item of a batch failed as it never should")
			break
		}
	}
	return items
}

// tenantOf is whose keys a request is about. Multi-tenancy is off, so it is
// always the default tenant, whatever the request says (behaviours, section 1).
func tenantOf(interface{ GetTenant() string }) string { return metadata.DefaultTenant }

// uuidOf reads a UUID in its canonical form; other spellings that the library
// accepts, and the nil UUID, are refused.
func uuidOf(field, text string) (uuid.UUID, error) {
	const canonical = 36
	if len(text) == canonical {
		if id, err := uuid.Parse(text); err == nil && id != uuid.Nil {
			return id, nil
		}
	}
	return uuid.Nil, errs.New(errs.InvalidParams, "",
		"%s is %q; it must be a UUID of 36 characters, such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8, and not the nil one", field, shorten(text))
}

// shorten keeps what a caller sent from flooding an error.
func shorten(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}

func clientOf(r interface{ GetClientId() string }) (segment.ClientID, error) {
	id, err := uuidOf("client_id", r.GetClientId())
	return segment.ClientID(id), err
}

func segmentID(field, text string) (segment.ID, error) {
	id, err := uuidOf(field, text)
	return segment.ID(id), err
}

// pageOf reads what part of a long answer is asked for.
func pageOf(r interface {
	GetPageSize() uint32
	GetPageToken() string
}) (service.Page, error) {
	size := r.GetPageSize()
	if size > pb.MaxPageSize {
		return service.Page{}, errs.New(errs.InvalidParams, "", "page_size is %d, at most %d are possible", size, pb.MaxPageSize)
	}
	if size == 0 {
		size = pb.DefaultPageSize
	}
	return service.Page{Size: int(size), Token: r.GetPageToken()}, nil
}

// succeeded counts the items of a batch without an error.
func succeeded(items int, failed []*pb.ItemError) uint32 { return uint32(items - len(failed)) }

// checkName refuses a name that is too long for anything to have it.
func checkName(field, name string) error {
	if len(name) > pb.MaxNameBytes {
		return errs.New(errs.InvalidParams, "", "%s has a name of %d bytes, at most %d are possible", field, len(name), pb.MaxNameBytes)
	}
	return nil
}
