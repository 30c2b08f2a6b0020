package simgpu

import (
	"debug/elf"
	"path/filepath"
	"testing"
)

// exported are the names of a library of an instance for that version of CUDA.
func exported(t *testing.T, cuda, library string) map[string]bool {
	t.Helper()
	store := builtStore(t)
	instance := start(t, store, "names", load(t, "t4", "driver.cuda="+cuda), "")
	file, err := elf.Open(filepath.Join(instance.Dir, library))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // only read
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			names[s.Name] = true
		}
	}
	return names
}

// A driver has the names of its version and no newer ones; programs take those that they find.
func TestAnInstanceHasTheNamesOfItsVersion(t *testing.T) {
	old, recent := exported(t, "12.4", libraries[0]), exported(t, "13.0", libraries[0])
	for name, want := range map[string][2]bool{
		"cuInit":            {true, true},
		"cuCtxGetDevice":    {true, true},
		"cuFuncGetName":     {true, true},  // of 12.3
		"cuCtxCreate_v4":    {false, true}, // of 12.5
		"cuCtxGetDevice_v2": {false, true}, // of 13.0
	} {
		if old[name] != want[0] || recent[name] != want[1] {
			t.Errorf("%s: 12.4 %t, 13.0 %t, want %v", name, old[name], recent[name], want)
		}
	}
	old, recent = exported(t, "11.4", libraries[1]), exported(t, "12.2", libraries[1])
	for name, want := range map[string][2]bool{
		"nvmlInit_v2":                {true, true},
		"nvmlDeviceGetMemoryInfo_v2": {false, true}, // of 11.6
	} {
		if old[name] != want[0] || recent[name] != want[1] {
			t.Errorf("%s: 11.4 %t, 12.2 %t, want %v", name, old[name], recent[name], want)
		}
	}
}

// Whatever is exported has a version, so that nothing is there by oversight.
func TestEveryNameHasAVersion(t *testing.T) {
	for i, library := range libraries {
		names := exported(t, "99.0", library)
		if want := []int{len(cudaSince), len(nvmlSince)}[i]; len(names) != want {
			t.Errorf("%s exports %d names, described are %d", library, len(names), want)
		}
		for name := range names {
			if since(name) == 0 {
				t.Errorf("%s exports %s, which has no version", library, name)
			}
		}
	}
}
