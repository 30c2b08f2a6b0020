// Package exports edits which names a shared object exports. It works on the file's bytes and loads nothing.
package exports

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged marks a shared object whose tables contradict each other.
var ErrDamaged = errors.New("its table of symbols is damaged")

// symbolSize is the size of an Elf64_Sym, and what follows are the offsets of its fields after the
// name: binding and type, section, value (System V ABI, "Symbol Table").
const (
	symbolSize    = 24
	symbolInfo    = 4
	symbolSection = 6
	symbolValue   = 8
)

// Keep returns a copy of a shared object, of the same size, that exports only the names for which keep
// is true. The others become weak references that nothing needs: the linker's search passes over them,
// as over names that were never there.
func Keep(image []byte, keep func(name string) bool) ([]byte, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("hide exported names: %w", err)
	}
	table := file.SectionByType(elf.SHT_DYNSYM)
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("hide exported names: %w", err)
	}
	// DynamicSymbols leaves out the first symbol, which is none.
	if table == nil || table.FileSize/symbolSize != uint64(len(symbols))+1 || table.Offset+table.FileSize > uint64(len(image)) {
		return nil, fmt.Errorf("hide exported names: %w", ErrDamaged)
	}
	hidden := bytes.Clone(image)
	for i, symbol := range symbols {
		if symbol.Section == elf.SHN_UNDEF || keep(symbol.Name) {
			continue
		}
		entry := hidden[table.Offset+uint64(i+1)*symbolSize:][:symbolSize]
		entry[symbolInfo] = byte(elf.STB_WEAK) << 4
		binary.NativeEndian.PutUint16(entry[symbolSection:], uint16(elf.SHN_UNDEF))
		clear(entry[symbolValue:])
	}
	return hidden, nil
}
