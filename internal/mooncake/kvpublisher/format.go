package kvpublisher

import (
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/understudy-store/understudy/metadata"
)

// A Format says what stands in an event, as Mooncake's flags do.
type Format struct {
	BackendID string
	ObjectKey bool // --kv_events_emit_object_key
	Legacy    bool // --kv_events_emit_legacy_compat: the names of vLLM's and SGLang's events too
}

type kind uint8

const (
	stored kind = iota
	removed
	cleared // of everything: what follows is all there is
)

// names are those of RFC #1527, and vLLM's.
var names = [...]struct{ event, legacy string }{{"stored", "BlockStored"}, {"removed", "BlockRemoved"}, {"cleared", "AllBlocksCleared"}}

// A change is one event: an object came to a medium, or left it.
type change struct {
	kind   kind
	of     *metadata.MediaChange
	medium string
	hash   uint64
	hashed bool // the key is a hash
}

const (
	mediaCount  = 2
	mostChanges = 1 + mediaCount // of one mediaChange, if its tenant is cleared first
)

func appendChanges(list []change, of *metadata.MediaChange) []change {
	for _, m := range [mediaCount]struct {
		media metadata.Media
		name  string
	}{{metadata.InMemory, "cpu"}, {metadata.OnDisk, "disk"}} {
		switch was, is := of.Before&m.media != 0, of.After&m.media != 0; {
		case is && !was:
			list = append(list, change{kind: stored, of: of, medium: m.name})
		case was && !is:
			list = append(list, change{kind: removed, of: of, medium: m.name})
		}
	}
	return list
}

// hashOf reads the hash that a key may be: in decimal, or in hexadecimal after 0x.
func hashOf(key string) (uint64, bool) {
	digits, base := key, 10
	if strings.HasPrefix(key, "0x") || strings.HasPrefix(key, "0X") {
		digits, base = key[2:], 16
	}
	if digits == "" || digits[0] == '+' || digits[0] == '_' {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, base, 64)
	return n, err == nil
}

// encode encodes a batch: the time, the events, and a data-parallel rank, which is 0.
func (f Format) encode(batch []change, first uint64, millis int64) []byte {
	const about = 320 // bytes of an event, without its names
	b := make([]byte, 0, about*len(batch))
	b = msgp.AppendArrayHeader(b, 3)
	b = msgp.AppendInt64(b, millis)
	b = msgp.AppendArrayHeader(b, uint32(len(batch)))
	for i := range batch {
		b = f.appendEvent(b, &batch[i], first+uint64(i), millis)
	}
	return msgp.AppendUint32(b, 0)
}

// fields is how many an event has in every case.
const fields = 11

func (f Format) appendEvent(b []byte, c *change, id uint64, millis int64) []byte {
	n := uint32(fields)
	if f.Legacy {
		n++
	}
	if c.kind != cleared {
		n += f.blockFields(c.kind)
	}
	b = msgp.AppendMapHeader(b, n)
	b = msgp.AppendUint64(msgp.AppendString(b, "event_id"), id)
	b = msgp.AppendInt64(msgp.AppendString(b, "timestamp"), millis)
	b = msgp.AppendString(msgp.AppendString(b, "event_type"), names[c.kind].event)
	if f.Legacy {
		b = msgp.AppendString(msgp.AppendString(b, "type"), names[c.kind].legacy)
	}
	for _, unknown := range []string{"model_name", "block_size", "additional_salt", "lora_name", "dp_rank"} {
		b = msgp.AppendNil(msgp.AppendString(b, unknown)) // indexers know them from their registration
	}
	b = msgp.AppendString(msgp.AppendString(b, "backend_id"), f.BackendID)
	b = msgp.AppendString(msgp.AppendString(b, "tenant_id"), c.of.Tenant)
	if c.kind == cleared { // on every medium
		return msgp.AppendNil(msgp.AppendString(b, "medium"))
	}
	b = msgp.AppendString(msgp.AppendString(b, "medium"), c.medium)
	return f.appendBlock(b, c)
}

// blockFields is how many fields appendBlock appends.
func (f Format) blockFields(k kind) uint32 {
	n := uint32(3)
	if f.ObjectKey {
		n++
	}
	if f.Legacy {
		n++
	}
	if k == stored {
		n += 2
		if f.Legacy {
			n++
		}
	}
	return n
}

// appendBlock appends what only an event about one object has.
func (f Format) appendBlock(b []byte, c *change) []byte {
	b = appendOptional(msgp.AppendString(b, "group_id"), c.of.Group)
	if f.ObjectKey {
		b = msgp.AppendString(msgp.AppendString(b, "object_key"), c.of.Key)
	}
	b = appendHash(msgp.AppendString(b, "seq_hashes"), c, msgp.AppendUint64)
	if f.Legacy {
		b = appendHash(msgp.AppendString(b, "block_hashes"), c, func(b []byte, n uint64) []byte { return msgp.AppendInt64(b, int64(n)) })
	}
	b = msgp.AppendString(b, "base_block_idx")
	if c.kind == removed {
		return msgp.AppendNil(b)
	}
	b = msgp.AppendUint32(b, 0) // each object is a block of its own
	b = msgp.AppendNil(msgp.AppendString(b, "parent_hash"))
	b = msgp.AppendNil(msgp.AppendString(b, "token_ids"))
	if f.Legacy {
		b = msgp.AppendNil(msgp.AppendString(b, "parent_block_hash"))
	}
	return b
}

func appendHash(b []byte, c *change, one func([]byte, uint64) []byte) []byte {
	if !c.hashed {
		return msgp.AppendArrayHeader(b, 0)
	}
	return one(msgp.AppendArrayHeader(b, 1), c.hash)
}

func appendOptional(b []byte, text string) []byte {
	if text == "" {
		return msgp.AppendNil(b)
	}
	return msgp.AppendString(b, text)
}
