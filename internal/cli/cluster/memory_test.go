package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLimitMemory(t *testing.T) {
	for text, want := range map[string]int64{"268435456\n": 214748364, "max\n": 0, "": 0, "-1": 0, "9223372036854771712\n": 0} {
		for _, set := range []string{"", "100MiB"} {
			t.Setenv("GOMEMLIMIT", set)
			path := filepath.Join(t.TempDir(), "memory.max")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var got int64
			limitMemory(path, func(limit int64) int64 { got = limit; return 0 })
			if want := want; set != "" && got != 0 || set == "" && got != want {
				t.Errorf("%q with GOMEMLIMIT=%s: %d, want %d", text, set, got, want)
			}
		}
	}
}
