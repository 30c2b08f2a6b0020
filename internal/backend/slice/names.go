package slice

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// symbolSize is the size of an Elf64_Sym, and what follows are the offsets of its fields after the
// name: binding and type, section, value (System V ABI, "Symbol Table").
const (
	symbolSize    = 24
	symbolInfo    = 4
	symbolSection = 6
	symbolValue   = 8
)

// withNames returns a copy of a shared object that exports no other names than those. The others
// become weak references that nothing needs: the linker's search passes over them, as over names
// that were never there, and goes on in the driver's library. It is pure.
//
// A program that looks for a name to learn what the driver can do finds ours otherwise, on drivers
// that are older than our description, and calls it.
func withNames(image []byte, names map[string]bool) ([]byte, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("hide names that the driver lacks: %w", err)
	}
	table := file.SectionByType(elf.SHT_DYNSYM)
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("hide names that the driver lacks: %w", err)
	}
	// DynamicSymbols leaves out the first symbol, which is none.
	if table == nil || table.FileSize/symbolSize != uint64(len(symbols))+1 || table.Offset+table.FileSize > uint64(len(image)) {
		return nil, fmt.Errorf("hide names that the driver lacks: %w", errDamaged)
	}
	hidden := bytes.Clone(image)
	for i, symbol := range symbols {
		if symbol.Section == elf.SHN_UNDEF || names[symbol.Name] {
			continue
		}
		entry := hidden[table.Offset+uint64(i+1)*symbolSize:][:symbolSize]
		entry[symbolInfo] = byte(elf.STB_WEAK) << 4
		binary.NativeEndian.PutUint16(entry[symbolSection:], uint16(elf.SHN_UNDEF))
		clear(entry[symbolValue:])
	}
	return hidden, nil
}
