package journal

// Encode returns the head as it is written.
func (h Head) Encode() (string, error) { return h.encode() }

// EncodeRecord returns the record of so many changes, each encoded behind its
// length.
func EncodeRecord(of Stamp, count int, changes []byte) []byte {
	return encodeRecord(of, count, [][]byte{changes})
}

// MaxRecordBytes bounds a record when it is unpacked.
const MaxRecordBytes = maxRecordBytes
