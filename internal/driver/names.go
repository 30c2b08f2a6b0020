package driver

import (
	"debug/elf"
	"fmt"
)

// Names are what a library of the driver exports, by name. It is read, not loaded.
func Names(path string) (map[string]bool, error) {
	file, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("read the driver's names: %w", err)
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the driver's names in %s: %w", path, err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the driver's names in %s: %w", path, err)
	}
	names := map[string]bool{}
	for _, s := range symbols {
		if bind := elf.ST_BIND(s.Info); s.Section != elf.SHN_UNDEF && (bind == elf.STB_GLOBAL || bind == elf.STB_WEAK) {
			names[s.Name] = true
		}
	}
	return names, nil
}
