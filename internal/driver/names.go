package driver

import (
	"debug/elf"
	"fmt"
	"regexp"
	"slices"
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

// documented are names of the two interfaces; the debugger's own begin otherwise.
var documented = regexp.MustCompile("^(cu|nvml)[A-Z]")

// private are names of the documented form that no header of NVIDIA's has, and that every driver from
// 470 to 555 exports.
var private = []string{
	"cuEGLApiInit", "cuMemGetAttribute", "cuMemGetAttribute_v2",
	"nvmlGetBlacklistDeviceCount", "nvmlGetBlacklistDeviceInfoByIndex", "nvmlRetry_NvRmControl",
}

// Unknown are the functions of the driver's library for which ours has no name, in alphabetical order.
// Calls of them go to the driver unchanged.
func Unknown(drivers, ours map[string]bool) []string {
	var unknown []string
	for name := range drivers {
		if !ours[name] && documented.MatchString(name) && !slices.Contains(private, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
