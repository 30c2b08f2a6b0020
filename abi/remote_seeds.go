package abi

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// seeds has a line for each generated call: its name, how long a record of it is that gives every parameter, and the
// bytes up to the last that is not zero. All handles are NULL, arrays have two elements, text is "a".
func (ri remoteInterface) seeds() string {
	var b strings.Builder
	for _, r := range ri {
		for _, c := range r.calls {
			record := r.record(c)
			trimmed := record
			for len(trimmed) > 0 && trimmed[len(trimmed)-1] == 0 {
				trimmed = trimmed[:len(trimmed)-1]
			}
			fmt.Fprintf(&b, "%s %d %s\n", c.Name, len(record), hex.EncodeToString(trimmed))
		}
	}
	return b.String()
}

// seedElements is the number of elements of each counted array in a seed.
const seedElements = 2

// record is a valid record of a call.
func (r remoteLibrary) record(c call) []byte {
	record := make([]byte, HeadBytes+8*c.words)
	word := func(at int, value uint64) {
		binary.LittleEndian.PutUint64(record[HeadBytes+8*at:], value)
	}
	given := uint32(0)
	for i, p := range c.Parameters {
		if p.Pointer() && p.Role != Address {
			given |= 1 << i
		}
		counts := c.roomFor(i) || len(c.counted(i)) > 0
		for _, a := range c.Parameters {
			counts = counts || a.Length.Of == i+1
		}
		var piece []byte
		switch {
		case counts:
			word(c.word[i], seedElements)
		case p.Role == Image:
			given &^= 1 << i
		case p.Role == Text && p.Const():
			word(c.word[i], 2)
			piece = []byte("a\x00")
		case p.Length.Versioned:
			size := r.types.elementBytes(p)
			word(c.word[i], uint64(size))
			piece = binary.LittleEndian.AppendUint32(nil, uint32(size)|1<<24)
			piece = append(piece, make([]byte, size-4)...)
		case p.Role == Makes:
			word(c.word[i], uint64(0x1000+i))
		case p.Pointer() && (p.Role == In || p.Role == InOut):
			piece = make([]byte, r.seedLength(p)*r.types.elementBytes(p))
		}
		record = append(record, piece...)
		record = append(record, make([]byte, (8-len(record)%8)%8)...)
	}
	binary.LittleEndian.PutUint32(record, uint32(len(record)))
	binary.LittleEndian.PutUint16(record[4:], uint16(c.number))
	binary.LittleEndian.PutUint64(record[8:], 1)
	binary.LittleEndian.PutUint32(record[28:], given)
	return record
}

// seedLength is how many elements a parameter has in a seed.
func (r remoteLibrary) seedLength(p Parameter) int {
	switch {
	case p.Length.Number > 0:
		return p.Length.Number
	case p.Length.Of > 0:
		return max(0, seedElements-p.Length.Less)
	}
	return 1
}
