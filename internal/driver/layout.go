package driver

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// first reads a file's first bytes as a shared object's, in this machine's byte order.
func first(file io.ReaderAt) (header elf.Header64) {
	if err := binary.Read(io.NewSectionReader(file, 0, int64(binary.Size(header))), binary.LittleEndian, &header); err != nil {
		return elf.Header64{}
	}
	return header
}

// plain reports whether a file's first bytes are a shared object's, and what they leave free is zero, as the
// loader wants it.
func plain(file io.ReaderAt) bool {
	header := first(file)
	free := [7]byte(header.Ident[elf.EI_ABIVERSION+1:])
	return string(header.Ident[:len(elf.ELFMAG)]) == elf.ELFMAG && elf.Data(header.Ident[elf.EI_DATA]) == elf.ELFDATA2LSB &&
		free == [7]byte{} && header.Version == uint32(elf.EV_CURRENT)
}

// Object reads a shared object that anybody may have made, and whose tables are thus bounded before they are read: reading it
// takes some MiB at the most. It fails for one of another form than this machine's.
func Object(file io.ReaderAt) (*elf.File, error) {
	header := first(file)
	if !plain(file) || elf.Class(header.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return nil, errors.New("read a shared object: it is none of 64 bits")
	}
	if fault := tablesFault(file); fault != "" {
		return nil, errors.New("read a shared object " + fault)
	}
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a shared object: %w", err)
	}
	return f, nil
}

// mostTable is the size of the largest table that is read. Those of NVIDIA's libraries have some ten KiB.
const mostTable = 4 << 20

// tablesFault says why the tables of a shared object of 64 bits are not read, "" if they can be. Who shares a GPU may
// name any file: a sparse one has tables of any size, and packed ones become as large when they are read.
func tablesFault(file io.ReaderAt) string {
	header := first(file)
	count, size := int64(header.Shnum), int64(binary.Size(elf.Section64{}))
	if header.Shoff > math.MaxInt64 || (header.Shoff > 0 && (count == 0 || int64(header.Shentsize) != size)) {
		return "whose table of sections has another form"
	}
	sections := make([]elf.Section64, count)
	if err := binary.Read(io.NewSectionReader(file, int64(header.Shoff), count*size), binary.LittleEndian, sections); err != nil {
		return "whose table of sections cannot be read"
	}
	large := func(s elf.Section64) bool {
		return s.Size > mostTable || elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0
	}
	for _, s := range sections {
		switch elf.SectionType(s.Type) {
		case elf.SHT_STRTAB, elf.SHT_DYNSYM, elf.SHT_DYNAMIC, elf.SHT_GNU_VERSYM, elf.SHT_GNU_VERNEED, elf.SHT_GNU_VERDEF:
			// The strings are read from where the table links to, whatever that is.
			if large(s) || int64(s.Link) < count && large(sections[s.Link]) {
				return "whose tables are packed, or larger than those of any driver"
			}
		}
	}
	return ""
}

// announced is how long a shared object is by its first bytes, 0 where they are no such thing's.
// Linkers put the table of sections last, so half a copy is known before its tables can be read.
func announced(file io.ReaderAt) uint64 {
	header := first(file)
	if string(header.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG || elf.Class(header.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return 0
	}
	return max(header.Shoff, header.Shoff+uint64(header.Shnum)*uint64(header.Shentsize))
}

// reach is where the last part of a shared object ends that its headers tell of.
func reach(f *elf.File) uint64 {
	var end uint64
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz, p.Off) // the sum of wrong headers may overflow
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS {
			end = max(end, s.Offset+s.FileSize, s.Offset)
		}
	}
	return end
}

// leastPage is the size of a page for which the loader wants segments to be aligned.
const leastPage = 4096

// layoutFault says why the loader would not map a shared object, or would map it wrongly; "" if nothing
// is wrong. What the loader refuses is what glibc's elf/dl-load.c refuses. Beyond that the
// sections, which it never reads, have to agree with the segments, which it maps: so one wrong byte
// in either is found.
func layoutFault(f *elf.File) string {
	if fault := formatFault(f); fault != "" {
		return fault
	}
	var loads []*elf.Prog
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if fault := segmentFault(p, loads); fault != "" {
			return fault
		}
		loads = append(loads, p)
	}
	if !hasNames(f) {
		return "no table of names, or two"
	}
	if !hasThreads(f) {
		return "another size of what each thread has"
	}
	for _, p := range f.Progs {
		if !loaded(p, loads) {
			return "a part lies outside what is loaded"
		}
	}
	for _, p := range loads {
		if !ends(p, f.Sections) {
			return "a segment of another size"
		}
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Size > 0 && !lies(s, loads) {
			return "a part lies outside what is loaded"
		}
	}
	return ""
}

// formatFault says what is wrong with the kind of an object.
func formatFault(f *elf.File) string {
	switch {
	case f.Data != elf.ELFDATA2LSB || f.Version != elf.EV_CURRENT || f.ABIVersion != 0:
		return "another format"
	case f.OSABI != elf.ELFOSABI_NONE && f.OSABI != elf.ELFOSABI_LINUX:
		return "for another system"
	case f.Type != elf.ET_DYN:
		return "not a shared object"
	}
	return ""
}

// hasNames reports whether segments and sections have the same table of names.
func hasNames(f *elf.File) bool {
	section := f.SectionByType(elf.SHT_DYNAMIC)
	for _, p := range f.Progs {
		if p.Type == elf.PT_DYNAMIC {
			return section != nil && p.Off == section.Offset && p.Vaddr == section.Addr && p.Filesz == section.FileSize
		}
	}
	return false
}

// segmentFault says what is wrong with a segment behind others.
func segmentFault(p *elf.Prog, before []*elf.Prog) string {
	switch {
	case p.Align < leastPage || p.Align&(p.Align-1) != 0 || (p.Vaddr-p.Off)%p.Align != 0:
		return "a segment that is not aligned"
	case p.Filesz > p.Memsz || p.Vaddr+p.Memsz < p.Vaddr:
		return "a segment that is larger than its memory"
	case p.Flags&elf.PF_R == 0:
		return "a segment that cannot be read"
	}
	if len(before) > 0 {
		if last := before[len(before)-1]; p.Vaddr < last.Vaddr+last.Memsz {
			return "segments that overlap"
		}
	}
	return ""
}

// loaded reports whether what a header describes is loaded, if it is a part of what is loaded.
func loaded(p *elf.Prog, loads []*elf.Prog) bool {
	switch p.Type {
	case elf.PT_LOAD, elf.PT_TLS, elf.PT_NULL, elf.PT_GNU_STACK:
		return true // the first two are looked at elsewhere, and of the last the loader reads the flags
	}
	for _, load := range loads {
		// What is made read-only ends with a page, and so may lie beyond the segment's end.
		end := (load.Vaddr + load.Memsz + leastPage - 1) &^ (leastPage - 1)
		if p.Vaddr >= load.Vaddr && p.Vaddr+p.Memsz >= p.Vaddr && p.Vaddr+p.Memsz <= end && p.Vaddr-load.Vaddr == p.Off-load.Off {
			return true
		}
	}
	return false
}

// ends reports whether a segment with memory that is not in the file ends, in both, where its sections
// do: the loader clears the rest.
func ends(p *elf.Prog, sections []*elf.Section) bool {
	if p.Memsz == p.Filesz {
		return true
	}
	var file, memory uint64
	for _, s := range sections {
		if s.Flags&elf.SHF_ALLOC == 0 || s.Addr < p.Vaddr || s.Addr >= p.Vaddr+p.Memsz || s.Flags&elf.SHF_TLS != 0 && s.Type == elf.SHT_NOBITS {
			continue
		}
		memory = max(memory, s.Addr+s.Size)
		if s.Type != elf.SHT_NOBITS {
			file = max(file, s.Addr+s.Size)
		}
	}
	return memory == p.Vaddr+p.Memsz && (file == p.Vaddr+p.Filesz || p.Filesz == 0)
}

// hasThreads reports whether a segment describes what each thread has, as the sections do.
func hasThreads(f *elf.File) bool {
	first, end := uint64(math.MaxUint64), uint64(0)
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_TLS != 0 {
			first, end = min(first, s.Addr), max(end, s.Addr+s.Size)
		}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS {
			return p.Vaddr == first && p.Memsz == end-first && p.Filesz <= p.Memsz && p.Align&(p.Align-1) == 0 && p.Align <= leastPage
		}
	}
	return end == 0
}

// lies reports whether a section lies in one of the segments, with the rights that it needs.
func lies(s *elf.Section, loads []*elf.Prog) bool {
	if s.Flags&elf.SHF_TLS != 0 && s.Type == elf.SHT_NOBITS {
		return true // each thread has a copy, and the segments have none
	}
	for _, p := range loads {
		if s.Addr < p.Vaddr || s.Addr+s.Size < s.Addr || s.Addr+s.Size > p.Vaddr+p.Memsz {
			continue
		}
		inFile := s.Type == elf.SHT_NOBITS || s.Addr-p.Vaddr == s.Offset-p.Off && s.Addr+s.Size <= p.Vaddr+p.Filesz
		return inFile && (s.Flags&elf.SHF_EXECINSTR == 0 || p.Flags&elf.PF_X != 0) && (s.Flags&elf.SHF_WRITE == 0 || p.Flags&elf.PF_W != 0)
	}
	return false
}
