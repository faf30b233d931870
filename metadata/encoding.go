package metadata

import (
	"fmt"
	"time"

	"github.com/understudy-store/understudy/internal/binenc"
	"github.com/understudy-store/understudy/segment"
)

// Types of object events as they stand in records. Never renumbered; a number
// that a node does not know makes it refuse the record.
const (
	typeTermStart      = 1
	typeMount          = 2
	typePutStart       = 3
	typePutEnd         = 4
	typeRevokeReplicas = 5
	typeClearReplicas  = 6
	typeDiscard        = 7
	TypeCutoff         = 8 // eviction.Cutoff
	typeMountLocalDisk = 9
	typeSetOffloading  = 10
	typeUnmountDisk    = 11
	typeAddLocalDisk   = 12
)

// DecodeObjectEvent decodes one object event, which must fill b. A cutoff is
// eviction's, which decodes it behind its type.
func DecodeObjectEvent(b []byte, cutoff func(*binenc.Reader) Change) (Change, error) {
	r := binenc.NewReader(b)
	var c Change
	switch kind := r.Byte(); kind {
	case typeTermStart:
		c = decodeTermStart(r)
	case typeMount:
		c = decodeMount(r)
	case typePutStart:
		c = decodePutStart(r)
	case typePutEnd:
		c = decodePutEnd(r)
	case typeRevokeReplicas:
		c = &RevokeReplicas{Ref: readRef(r), Selector: readSelector(r)}
	case typeClearReplicas:
		c = &ClearReplicas{Ref: readRef(r), Segments: readNumbers(r)}
	case TypeCutoff:
		c = cutoff(r)
	case typeDiscard:
		c = &Discard{Ref: readRef(r)}
	case typeMountLocalDisk:
		e := new(MountLocalDisk)
		copy(e.Client[:], r.Fixed(len(e.Client)))
		e.Offloading = r.Bool()
		c = e
	case typeSetOffloading:
		c = &SetOffloading{Number: readNumber(r), Offloading: r.Bool()}
	case typeUnmountDisk:
		c = &UnmountLocalDisk{Number: readNumber(r)}
	case typeAddLocalDisk:
		c = &AddLocalDisk{Ref: readRef(r), Number: readNumber(r), Endpoint: r.String(MaxNameBytes)}
	default:
		return nil, fmt.Errorf("object event of type %d: this version does not know it; upgrade this node", kind)
	}
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("object event %T: %w", c, err)
	}
	return c, nil
}

func optional(there bool, bit byte) byte {
	if there {
		return bit
	}
	return 0
}

func appendTenant(b []byte, name string) []byte {
	if name == DefaultTenant {
		name = "" // by far the most frequent
	}
	return binenc.AppendString(b, name)
}

func readTenant(r *binenc.Reader) string {
	if name := r.String(MaxTenantBytes); name != "" {
		return name
	}
	return DefaultTenant
}

func appendRef(b []byte, ref Ref) []byte {
	b = binenc.AppendUvarint(b, uint64(ref.Shard))
	return binenc.AppendUvarint(b, uint64(ref.ID))
}

func readRef(r *binenc.Reader) Ref {
	return Ref{Shard: uint16(r.UvarintMax("a shard", ShardCount-1)), ID: ObjectID(r.Uvarint())}
}

func readSelector(r *binenc.Reader) Selector {
	s := Selector(r.Byte())
	if s < SelectMemory || s > SelectAll {
		r.Fail("selector %d", s)
	}
	return s
}

func appendPlacement(b []byte, number segment.Number, rng segment.Range) []byte {
	b = binenc.AppendUvarint(b, uint64(number))
	b = binenc.AppendUvarint(b, uint64(rng.Offset))
	return binenc.AppendUvarint(b, uint64(rng.Length))
}

func readPlacement(r *binenc.Reader) (segment.Number, segment.Range) {
	return readNumber(r), segment.Range{
		Offset: uint32(r.UvarintMax("an offset", 1<<32-1)),
		Length: uint32(r.UvarintMax("a length", 1<<32-1)),
	}
}

func readNumber(r *binenc.Reader) segment.Number {
	return segment.Number(r.UvarintMax("a segment number", 1<<32-1))
}

func appendNumbers(b []byte, numbers []segment.Number) []byte {
	b = binenc.AppendUvarint(b, uint64(len(numbers)))
	for _, n := range numbers {
		b = binenc.AppendUvarint(b, uint64(n))
	}
	return b
}

func readNumbers(r *binenc.Reader) []segment.Number {
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	numbers := make([]segment.Number, n)
	for i := range numbers {
		numbers[i] = readNumber(r)
	}
	return numbers
}

func appendSpec(b []byte, s segment.Spec) []byte {
	b = append(b, s.ID[:]...)
	b = append(b, s.Client[:]...)
	b = binenc.AppendString(b, s.Name)
	b = binenc.AppendUvarint(b, s.Base)
	b = binenc.AppendUvarint(b, s.Size)
	b = binenc.AppendString(b, s.Endpoint)
	b = binenc.AppendString(b, s.Protocol)
	return binenc.AppendString(b, s.HostID)
}

func readSpec(r *binenc.Reader) (s segment.Spec) {
	copy(s.ID[:], r.Fixed(len(s.ID)))
	copy(s.Client[:], r.Fixed(len(s.Client)))
	s.Name = r.String(MaxNameBytes)
	s.Base = r.Uvarint()
	s.Size = r.Uvarint()
	s.Endpoint = r.String(MaxNameBytes)
	s.Protocol = r.String(MaxNameBytes)
	s.HostID = r.String(MaxNameBytes)
	return s
}

func appendParams(b []byte, p Params) []byte {
	b = appendMillis(b, p.LeaseTTL)
	b = appendMillis(b, p.DiscardTimeout)
	b = appendMillis(b, p.ReleaseTimeout)
	return binenc.AppendBool(b, p.LeaseOnPutEnd)
}

func readParams(r *binenc.Reader) Params {
	return Params{
		LeaseTTL: readMillis(r), DiscardTimeout: readMillis(r), ReleaseTimeout: readMillis(r), LeaseOnPutEnd: r.Bool(),
	}
}

func readTerm(r *binenc.Reader) Term { return Term(r.UvarintMax("a term", MaxTerm)) }

func readTime(r *binenc.Reader) Time { return Time(r.Varint()) }

// Durations are whole milliseconds in records.
func appendMillis(b []byte, d time.Duration) []byte {
	return binenc.AppendUvarint(b, uint64(d.Milliseconds()))
}

func readMillis(r *binenc.Reader) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(r.UvarintMax("a duration", most)) * time.Millisecond
}
