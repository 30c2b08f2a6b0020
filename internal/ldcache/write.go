package ldcache

import (
	"encoding/binary"
)

// Bytes returns the cache as a file.
func (c *Cache) Bytes() []byte {
	table := headerBytes + len(c.entries)*entryBytes
	strings := stringTable{start: table, offsets: map[string]uint32{}}
	file := append([]byte(magic), make([]byte, headerBytes-len(magic))...)
	for _, e := range c.entries {
		file = binary.NativeEndian.AppendUint32(file, e.Flags)
		file = binary.NativeEndian.AppendUint32(file, strings.offset(e.Name))
		file = binary.NativeEndian.AppendUint32(file, strings.offset(e.Path))
		file = binary.NativeEndian.AppendUint32(file, e.OSVersion)
		file = binary.NativeEndian.AppendUint64(file, e.Hwcap)
	}
	names := make([]uint32, len(c.hwcaps))
	for i, name := range c.hwcaps {
		names[i] = strings.offset(name)
	}
	file = append(file, strings.text...)
	binary.NativeEndian.PutUint32(file[20:], uint32(len(c.entries)))
	binary.NativeEndian.PutUint32(file[24:], uint32(len(strings.text)))
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		file[28] = littleEndianTag
	}
	if len(names) == 0 {
		return file
	}
	for len(file)%4 != 0 {
		file = append(file, 0)
	}
	binary.NativeEndian.PutUint32(file[32:], uint32(len(file)))
	list := len(file) + extensionBytes + sectionBytes
	for _, word := range append([]uint32{extensionMagic, 1, sectionHwcaps, 0, uint32(list), uint32(4 * len(names))}, names...) {
		file = binary.NativeEndian.AppendUint32(file, word)
	}
	return file
}

// stringTable collects strings, each once, as they will lie behind the table.
type stringTable struct {
	start   int
	text    []byte
	offsets map[string]uint32
}

func (t *stringTable) offset(s string) uint32 {
	at, ok := t.offsets[s]
	if !ok {
		at = uint32(t.start + len(t.text))
		t.offsets[s] = at
		t.text = append(append(t.text, s...), 0)
	}
	return at
}
