package ldcache

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Flags of a library for a processor: ELF with the C library's current ABI, and
// the processor's own bits.
const (
	FlagsAMD64 = 0x0303
	FlagsARM64 = 0x0a03
)

// stringTable collects the cache's strings and their offsets.
type stringTable struct {
	start   uint32
	data    []byte
	offsets map[string]uint32
}

func (t *stringTable) add(s string) uint32 {
	if at, ok := t.offsets[s]; ok {
		return at
	}
	at := t.start + uint32(len(t.data))
	t.data = append(append(t.data, s...), 0)
	t.offsets[s] = at
	return at
}

// Encode writes a cache. The linker looks names up by bisection, so entries are
// sorted by [compareNames], the largest first. Entries of one name keep their order,
// which is the linker's preference.
func (c *Cache) Encode() []byte {
	entries := slices.Clone(c.Entries)
	slices.SortStableFunc(entries, func(a, b Entry) int { return compareNames(b.Name, a.Name) })

	order := binary.LittleEndian
	table := &stringTable{
		start:   headerSize + uint32(len(entries))*entrySize,
		offsets: map[string]uint32{},
	}
	var body []byte
	for _, e := range entries {
		body = order.AppendUint32(body, uint32(e.Flags))
		body = order.AppendUint32(body, table.add(e.Name))
		body = order.AppendUint32(body, table.add(e.Path))
		body = order.AppendUint32(body, e.OSVersion)
		body = order.AppendUint64(body, e.HWCap)
	}
	var hwcaps []uint32
	for _, name := range c.HWCaps {
		hwcaps = append(hwcaps, table.add(name))
	}
	for (int(table.start)+len(table.data))%4 != 0 {
		table.data = append(table.data, 0)
	}
	extension := uint32(0)
	if len(hwcaps) > 0 {
		extension = table.start + uint32(len(table.data))
	}

	out := append(make([]byte, 0, int(table.start)+len(table.data)+64), magic...)
	out = order.AppendUint32(out, uint32(len(entries)))
	out = order.AppendUint32(out, uint32(len(table.data)))
	out = append(out, littleEndian, 0, 0, 0)
	out = order.AppendUint32(out, extension)
	out = append(out, make([]byte, 12)...)
	out = append(append(out, body...), table.data...)
	return appendExtension(out, hwcaps)
}

// appendExtension writes the directory of one section and the section.
func appendExtension(out []byte, hwcaps []uint32) []byte {
	if len(hwcaps) == 0 {
		return out
	}
	order := binary.LittleEndian
	section := uint32(len(out)) + 8 + sectionSize
	for _, word := range []uint32{extensionMagic, 1, tagHWCaps, 0, section, uint32(len(hwcaps)) * 4} {
		out = order.AppendUint32(out, word)
	}
	for _, at := range hwcaps {
		out = order.AppendUint32(out, at)
	}
	return out
}

// compareNames orders names as the linker does: runs of digits by their value, and
// digits after all other characters.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		switch {
		case digit(a[0]) && digit(b[0]):
			var x, y int32
			x, a = leadingNumber(a)
			y, b = leadingNumber(b)
			if x != y {
				return cmp.Compare(x, y)
			}
		case digit(a[0]):
			return 1
		case digit(b[0]):
			return -1
		case a[0] != b[0]:
			return cmp.Compare(a[0], b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	return cmp.Compare(len(a), len(b))
}

func digit(c byte) bool {
	return c >= '0' && c <= '9'
}

// leadingNumber splits the digits off the front of s. The linker adds them up in
// a C int, so numbers beyond its range wrap here too.
func leadingNumber(s string) (int32, string) {
	var n int32
	for s != "" && digit(s[0]) {
		n = n*10 + int32(s[0]-'0')
		s = s[1:]
	}
	return n, s
}
