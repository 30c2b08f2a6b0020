// Package ldcache reads, extends and writes the dynamic linker's cache, the file
// /etc/ld.so.cache of glibc. An extended copy, mounted over that file in a mount
// namespace, makes the linker find a library by its name, whatever the environment
// says. ldconfig(8) would write the same file, but it reads every library of the
// machine and leaves traces in /var/cache.
//
// The package knows the format that glibc has written since 2.2, alone or after the
// older one ("compat"). The structs cache_file_new and cache_extension in glibc's
// sysdeps/generic/dl-cache.h describe it.
package ldcache

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Path is where the dynamic linker looks for its cache.
const Path = "/etc/ld.so.cache"

// ErrFormat marks a file that is not a cache of the known format.
var ErrFormat = errors.New("not a dynamic linker cache")

// Sizes and marks of the format. Numbers are in little-endian order and
// string offsets count from the header's first byte.
const (
	magic          = "glibc-ld.so.cache1.1"
	headerSize     = 48
	entrySize      = 24
	extensionMagic = 0xeaa42174
	extensionSize  = 8
	sectionSize    = 16
	tagHWCaps      = 1
	littleEndian   = 2 // the flag byte of caches in little-endian order
)

// Entry says that the library called Name is the file Path.
type Entry struct {
	Name, Path string
	// Flags tell the kind of library: [FlagsAMD64] or [FlagsARM64].
	Flags uint32
	// OSVersion and HWCap restrict where the entry is used; 0 means anywhere.
	OSVersion uint32
	HWCap     uint64
}

// Cache is the content of a cache file, in the order of the file.
type Cache struct {
	Entries []Entry
	// HWCaps are the names of processor levels that entries refer to by
	// number.
	HWCaps []string
}

// Add adds entries, which come before existing ones of the same name.
func (c *Cache) Add(entries ...Entry) {
	c.Entries = append(slices.Clone(entries), c.Entries...)
}

// Lookup returns the files of every kind that the linker considers for a library
// name, the preferred first.
func (c *Cache) Lookup(name string) []string {
	var paths []string
	for _, e := range c.Entries {
		if e.Name == name {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// Parse reads a cache file.
func Parse(data []byte) (*Cache, error) {
	start := bytes.Index(data, []byte(magic))
	if start < 0 {
		return nil, fmt.Errorf("%w: magic %q is missing", ErrFormat, magic)
	}
	r := reader{data: data[start:]}
	if len(r.data) < headerSize {
		return nil, fmt.Errorf("%w: it ends inside its header", ErrFormat)
	}
	if tag := r.data[28] & 3; tag != littleEndian && tag != 0 {
		return nil, fmt.Errorf("%w: it is for another byte order", ErrFormat)
	}
	count := uint64(r.u32(20))
	if headerSize+count*entrySize > uint64(len(r.data)) {
		return nil, fmt.Errorf("%w: it ends inside its table", ErrFormat)
	}
	c := &Cache{Entries: make([]Entry, 0, count)}
	for i := range count {
		at := headerSize + i*entrySize
		c.Entries = append(c.Entries, Entry{
			Flags: r.u32(at), Name: r.text(r.u32(at + 4)), Path: r.text(r.u32(at + 8)),
			OSVersion: r.u32(at + 12), HWCap: r.u64(at + 16),
		})
	}
	if extension := r.u32(32); extension != 0 {
		c.HWCaps = r.readHWCaps(uint64(extension))
	}
	if r.fault != nil {
		return nil, r.fault
	}
	return c, nil
}

// reader reads parts of a cache file and keeps the first access outside it as an error.
type reader struct {
	data  []byte
	fault error
}

func (r *reader) bytes(at, n uint64) []byte {
	if at > uint64(len(r.data)) || n > uint64(len(r.data))-at {
		if r.fault == nil {
			r.fault = fmt.Errorf("%w: it refers to byte %d of %d", ErrFormat, at, len(r.data))
		}
		return make([]byte, min(n, 8))
	}
	return r.data[at : at+n]
}

func (r *reader) u32(at uint64) uint32 { return binary.LittleEndian.Uint32(r.bytes(at, 4)) }
func (r *reader) u64(at uint64) uint64 { return binary.LittleEndian.Uint64(r.bytes(at, 8)) }

// text reads a string that a NUL ends.
func (r *reader) text(at uint32) string {
	rest := r.bytes(uint64(at), 1)
	if r.fault == nil {
		rest = r.data[at:]
	}
	end := bytes.IndexByte(rest, 0)
	if end < 0 {
		r.bytes(uint64(len(r.data)), 1)
		return ""
	}
	return string(rest[:end])
}

// readHWCaps reads the names of processor levels from the extension. It skips the
// other sections, which entries do not refer to.
func (r *reader) readHWCaps(at uint64) []string {
	if r.u32(at) != extensionMagic {
		r.fault = cmp.Or(r.fault, fmt.Errorf("%w: its extension has no magic number", ErrFormat))
		return nil
	}
	var names []string
	for i := range uint64(r.u32(at + 4)) {
		section := at + extensionSize + i*sectionSize
		tag, offset, size := r.u32(section), uint64(r.u32(section+8)), uint64(r.u32(section+12))
		if r.fault != nil {
			return nil
		}
		if tag != tagHWCaps {
			continue
		}
		list := r.bytes(offset, size)
		for ; len(list) >= 4; list = list[4:] {
			names = append(names, r.text(binary.LittleEndian.Uint32(list)))
		}
	}
	return names
}
