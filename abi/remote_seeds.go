package abi

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
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
	given := uint32(0)
	for i, p := range c.Parameters {
		if p.Pointer() && p.Role != Address && p.Role != Image {
			given |= 1 << i
		}
		if word, ok := r.seedWord(c, i, p); ok {
			binary.LittleEndian.PutUint64(record[HeadBytes+8*c.word[i]:], word)
		}
		record = append(record, r.seedPiece(p)...)
		record = append(record, make([]byte, (8-len(record)%8)%8)...)
	}
	binary.LittleEndian.PutUint32(record, uint32(len(record)))
	binary.LittleEndian.PutUint16(record[4:], uint16(c.number))
	binary.LittleEndian.PutUint64(record[8:], 1)
	binary.LittleEndian.PutUint32(record[28:], given)
	return record
}

// seedWord is the word of a parameter in a seed, and whether it is not 0.
func (r remoteLibrary) seedWord(c call, i int, p Parameter) (uint64, bool) {
	switch {
	case slices.ContainsFunc(c.Parameters, func(a Parameter) bool { return a.Length.Of == i+1 }):
		return seedElements, true
	case p.Role == Text && p.Const():
		return uint64(len(seedText)), true
	case p.Length.Versioned:
		return uint64(r.types.elementBytes(p)), true
	case p.Role == Makes:
		return uint64(0x1000 + i), true
	}
	return 0, false
}

const seedText = "a\x00"

// seedPiece is the memory of a parameter in a seed.
func (r remoteLibrary) seedPiece(p Parameter) []byte {
	switch {
	case p.Role == Text && p.Const():
		return []byte(seedText)
	case p.Length.Versioned:
		size := r.types.elementBytes(p)
		piece := binary.LittleEndian.AppendUint32(nil, uint32(size)|1<<24)
		return append(piece, make([]byte, size-4)...)
	case p.Pointer() && (p.Role == In || p.Role == InOut):
		return make([]byte, r.seedLength(p)*r.types.elementBytes(p))
	}
	return nil
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
