package httpapi

import (
	"bufio"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/escape"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// A buffer is where a replica in memory lies, in upstream's names.
type buffer struct {
	Size     uint64 `json:"size_"`
	Address  uint64 `json:"buffer_address_"`
	Protocol string `json:"protocol_"`
	Endpoint string `json:"transport_endpoint_"`
}

// buffers returns the readable replicas in memory.
func buffers(replicas []metadata.Descriptor) []buffer {
	list := []buffer{} // never null
	for _, r := range replicas {
		if r.Kind == metadata.Memory && r.Status == metadata.Complete {
			list = append(list, buffer{r.Size, r.Address, r.Protocol, r.Endpoint})
		}
	}
	return list
}

func param(r *http.Request, name string) (string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", errs.New(errs.InvalidParams, "", "the query cannot be read; give ?%s= with its value percent-encoded", name)
	}
	return strings.Clone(query.Get(name)), nil // a tenant with a quota outlives the URL
}

// tenantOf returns whose keys a query is about: those of the default tenant, as
// upstream, unless it names another one.
func tenantOf(r *http.Request, m *service.Master) (string, error) {
	named, err := param(r, "tenant_id")
	return m.Tenants.Of(named), err
}

// callTimeout is how long a query waits for a change of its key to be written.
const callTimeout = 10 * time.Second

// queryKey answers where an object lies, and grants a lease. A query without a key is
// about one that does not exist, as upstream.
func queryKey(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	key, err := param(r, "key")
	if err != nil {
		return err
	}
	if key == "" {
		return errs.ObjectNotFound
	}
	tenant, err := tenantOf(r, m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	list, err := m.GetReplicaList(ctx, tenant, key)
	if err != nil {
		return err
	}
	writeData(w, buffers(list.Replicas))
	return nil
}

// A keyAnswer is what batch_query_keys answers for one key, as upstream with null
// for what there is not.
type keyAnswer struct {
	OK     bool       `json:"ok"`
	Error  *string    `json:"error"`
	Memory []buffer   `json:"values"`
	Files  []file     `json:"disk_values"`
	SSDs   []ssdFile  `json:"local_disk_values"`
	NoF    []struct{} `json:"nof_values"` // there is no such pool
}

// A file is a DISK replica.
type file struct {
	Path string `json:"file_path"`
	Size uint64 `json:"object_size"`
}

// An ssdFile is a LOCAL_DISK replica.
type ssdFile struct {
	Client   string `json:"client_id"`
	Size     uint64 `json:"object_size"`
	Endpoint string `json:"transport_endpoint"`
}

// answerFor shows the readable replicas of an object.
func answerFor(o metadata.Object, err error) (a keyAnswer) {
	a = keyAnswer{OK: true, Memory: buffers(o.Replicas)}
	for _, r := range o.Replicas {
		switch {
		case r.Status != metadata.Complete:
		case r.Kind == metadata.Disk:
			a.Files = append(a.Files, file{r.Path, r.Size})
		case r.Kind == metadata.LocalDisk:
			a.SSDs = append(a.SSDs, ssdFile{service.Decimal(r.Client), r.Size, r.Endpoint})
		}
	}
	if err == nil && len(a.Memory)+len(a.Files)+len(a.SSDs) == 0 {
		err = errs.ReplicaNotReady
	}
	if err != nil {
		name := errs.KindOf(err).String()
		return keyAnswer{Error: &name}
	}
	return a
}

const (
	// maxQueryBytes bounds what a query of several keys finds. All such queries together may
	// hold maxQueriesBytes, one host half; an eighth is for hosts with no more than
	// fewQueryBytes, and freeQueryBytes of each are not counted.
	maxQueryBytes   = 16 << 20
	maxQueriesBytes = 64 << 20
	fewQueryBytes   = 1 << 20
	freeQueryBytes  = 64 << 10
)

// batchQueryKeys answers where objects lie, without a lease: the answer is for
// people, and may be outdated when it arrives.
func (a API) batchQueryKeys(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	text, err := param(r, "keys")
	if err != nil {
		return err
	}
	if text == "" {
		writeJSON(w, http.StatusBadRequest, struct {
			Success bool   `json:"success"`
			Error   string `json:"error"`
		}{false, "No keys provided. Use ?keys=key1,key2,..."})
		return nil
	}
	if n := strings.Count(text, ",") + 1; n > pb.MaxBatchItems {
		return errs.New(errs.InvalidParams, "", "%d keys are given, at most %d are possible; split the query", n, pb.MaxBatchItems)
	}
	tenant, err := tenantOf(r, m)
	if err != nil {
		return err
	}
	host, taken := hostOf(r), int64(0)
	defer func() { a.queries.GiveBack(host, taken) }()
	answers, bytes := make(map[string]keyAnswer), 0
	for key := range strings.SplitSeq(text, ",") {
		if _, asked := answers[key]; asked {
			continue
		}
		o, err := m.Inspect(r.Context(), tenant, key)
		if errs.KindOf(err) == errs.NotLeader {
			return err
		}
		answers[key] = answerFor(o, err)
		bytes += service.EntryBytes + len(key) + service.ReplicaBytes(o.Replicas)
		if bytes > maxQueryBytes {
			return errs.New(errs.InvalidParams, "", "the answer has more than %d bytes; ask for fewer keys at once", maxQueryBytes)
		}
		if more := int64(bytes-freeQueryBytes) - taken; more > 0 {
			if ok, _, _ := a.queries.Take(host, more); !ok {
				return errs.New(errs.Unavailable, "", "too many large answers are under way here, or to your host; try again, or ask for fewer keys at once")
			}
			taken += more
		}
	}
	if err := m.Fence(r.Context()); err != nil {
		return err
	}
	out := newJSONWriter(w, `{"success":true,"data":{`)
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		if err := out.member(key, answers[key]); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
	}
	out.end("}}")
	return nil
}

const (
	// pageKeys and pageBytes are how many keys are held at once.
	pageKeys  = 4096
	pageBytes = 1 << 20
	// pageTimeout is how long a reader may take for one page.
	pageTimeout = 30 * time.Second
	// keysRate is how many bytes of the list must go in each second of waiting for the reader,
	// on average after the first pageTimeout.
	keysRate = 64 << 10
)

// A pace says how fast a list must be read.
type pace struct {
	page time.Duration // for one page, and for what goes beyond rate
	rate int64         // bytes a second
}

// left returns for how long a reader may be waited for, after so many bytes and so long a wait.
func (p pace) left(bytes int64, waited time.Duration) time.Duration {
	return min(p.page, p.page+time.Duration(float64(bytes)/float64(p.rate)*float64(time.Second))-waited)
}

// allKeys answers with all keys that have a readable replica, one in a line, as
// upstream (v0.3.12 listed reservations too). It goes page by page: keys that come
// or go meanwhile may be in the answer or not. An answer that cannot be brought to
// its end is cut off, so that nobody takes it for whole.
func (a API) allKeys(w http.ResponseWriter, r *http.Request, m *service.Master) error {
	tenant, err := tenantOf(r, m)
	if err != nil {
		return err
	}
	var sent int64
	var waited time.Duration
	out, now := bufio.NewWriter(w), clock.Boot()
	for page := (service.Page{Size: pageKeys, Bytes: pageBytes}); ; {
		within(w, a.pace.page) // for the page to be found
		keys, next, err := m.Keys(r.Context(), tenant, "", true, page)
		if err == nil {
			err = m.Fence(r.Context())
		}
		// Whole lists take long; only a reader that stands still, or is slow on the whole, is
		// given up.
		left := a.pace.left(sent, waited)
		within(w, left)
		switch {
		case err != nil && page.Token == "":
			return err
		case err != nil || left <= 0:
			panic(http.ErrAbortHandler)
		case page.Token == "":
			w.Header().Set("Content-Type", figuresType)
		}
		begun := now()
		for _, key := range keys {
			n, _ := out.WriteString(escape.Name(key) + "\n")
			sent += int64(n)
		}
		if err := out.Flush(); err != nil || next == "" {
			return nil //nolint:nilerr // the reader is gone
		}
		waited += now() - begun
		page.Token = next
	}
}
