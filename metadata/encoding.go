package metadata

import (
	"fmt"
	"time"

	"github.com/understudy-store/understudy/metadata/binenc"
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
	typeUseRules       = 13
	typeFork           = 14
	typeCloseSegment   = 15
	typeWipeDisks      = 16
	typeStartTransfer  = 17
	typeEndTransfer    = 18
	typeAddTask        = 19
	typeSetTasks       = 20
	typeSaveDrain      = 21
	typeSetQuota       = 22
)

// DecodeObjectEvent decodes one object event, which must fill b. cutoff returns
// an empty cutoff, which is eviction's.
func DecodeObjectEvent(b []byte, cutoff func() Change) (Change, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("object event: %w: it has no bytes", binenc.ErrCorrupt)
	}
	var e Change
	switch kind := b[0]; kind {
	case typeTermStart:
		e = new(TermStart)
	case typeMount:
		e = new(Mount)
	case typePutStart:
		e = new(PutStart)
	case typePutEnd:
		e = new(PutEnd)
	case typeRevokeReplicas:
		e = new(RevokeReplicas)
	case typeClearReplicas:
		e = new(ClearReplicas)
	case typeDiscard:
		e = new(Discard)
	case TypeCutoff:
		e = cutoff()
	case typeMountLocalDisk:
		e = new(MountLocalDisk)
	case typeSetOffloading:
		e = new(SetOffloading)
	case typeUnmountDisk:
		e = new(UnmountLocalDisk)
	case typeAddLocalDisk:
		e = new(AddLocalDisk)
	case typeUseRules:
		e = new(UseRules)
	case typeFork:
		e = new(Fork)
	case typeCloseSegment:
		e = new(CloseSegment)
	case typeWipeDisks:
		e = new(WipeDisks)
	case typeStartTransfer:
		e = new(StartTransfer)
	case typeEndTransfer:
		e = new(EndTransfer)
	case typeAddTask:
		e = new(AddTask)
	case typeSetTasks:
		e = new(SetTasks)
	case typeSaveDrain:
		e = new(SaveDrain)
	case typeSetQuota:
		e = new(SetQuota)
	default:
		return nil, fmt.Errorf("object event of type %d: this version does not know it; upgrade this node", kind)
	}
	if err := Decode(b, e); err != nil {
		return nil, fmt.Errorf("object event %T: %w", e, err)
	}
	return e, nil
}

// Decode sets the fields of a change from its encoding, which must fill b.
func Decode(b []byte, into Change) error {
	c := binenc.Decoder(b)
	into.Code(&c)
	return c.Close()
}

// Encode appends the encoding of a change.
func Encode(b []byte, change Change) []byte {
	c := binenc.Encoder(b)
	change.Code(&c)
	return c.Encoded()
}

func codeTenant(c *binenc.Coder, name *string) {
	short := *name
	if short == DefaultTenant {
		short = "" // by far the most frequent
	}
	if c.CodeString(&short, MaxTenantBytes); short == "" {
		short = DefaultTenant
	}
	*name = short
}

func codeRef(c *binenc.Coder, ref *Ref) {
	binenc.CodeUvarintMax(c, &ref.Shard, "a shard", ShardCount-1)
	binenc.CodeUvarint(c, &ref.ID)
}

func codeSelector(c *binenc.Coder, s *Selector) {
	b := byte(*s)
	c.CodeByte(&b)
	if *s = Selector(b); *s < SelectMemory || *s > SelectAll {
		c.Fail("selector %d", b)
	}
}

func codePlacement(c *binenc.Coder, number *segment.Number, rng *segment.Range) {
	codeNumber(c, number)
	binenc.CodeUvarintMax(c, &rng.Offset, "an offset", 1<<32-1)
	binenc.CodeUvarintMax(c, &rng.Length, "a length", 1<<32-1)
}

func codePlacements(c *binenc.Coder, list *[]Placement) {
	binenc.CodeSlice(c, list, 3, func(at *Placement) { codePlacement(c, &at.Segment, &at.Range) })
	if n := len(*list); n > MaxReplicas {
		c.Fail("%d replicas", n)
	}
}

func codeNumber(c *binenc.Coder, number *segment.Number) {
	binenc.CodeUvarintMax(c, number, "a segment number", 1<<32-1)
}

func codeNumbers(c *binenc.Coder, numbers *[]segment.Number) {
	binenc.CodeSlice(c, numbers, 1, func(n *segment.Number) { codeNumber(c, n) })
}

func codeSpec(c *binenc.Coder, s *segment.Spec) {
	c.CodeFixed(s.ID[:])
	c.CodeFixed(s.Client[:])
	c.CodeString(&s.Name, MaxNameBytes)
	binenc.CodeUvarint(c, &s.Base)
	binenc.CodeUvarint(c, &s.Size)
	c.CodeString(&s.Endpoint, MaxNameBytes)
	c.CodeString(&s.Protocol, MaxNameBytes)
	c.CodeString(&s.HostID, MaxNameBytes)
	c.Check(s.Validate())
}

func codeParams(c *binenc.Coder, p *Params) {
	codeMillis(c, &p.LeaseTTL)
	codeMillis(c, &p.DiscardTimeout)
	codeMillis(c, &p.ReleaseTimeout)
	c.CodeBool(&p.LeaseOnPutEnd)
}

// Durations are whole milliseconds in records.
func codeMillis(c *binenc.Coder, d *time.Duration) {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	ms := uint64(d.Milliseconds())
	if binenc.CodeUvarintMax(c, &ms, "a duration", most); c.Decoding() {
		*d = time.Duration(ms) * time.Millisecond
	}
}
