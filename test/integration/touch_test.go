package integration

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
)

// swept is how gpubench sweep ends.
type swept struct {
	Result    string `json:"result"`
	Steps     int    `json:"steps"`
	Equal     bool   `json:"equal"`
	Marks     int    `json:"marks"`
	Allocated uint64 `json:"allocated_bytes"`
}

// gpubench sweep goes through its memory as often as it is told to, and finds its marks. The driver's record says what it touched.
func TestSweep(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		args        []string
		want        swept
		least, most uint64 // bytes of managed memory that come to a GPU of which less than 1 GiB is free
	}{
		"ordinary": {[]string{"--bytes", "600Mi", "--count", "2", "--steps", "3"}, swept{"CUDA_SUCCESS", 6, true, 300, 600 * mib}, 0, 0},
		// What nobody filled is not moved.
		"fits": {[]string{"--bytes", "600Mi", "--count", "3", "--kind", "managed"}, swept{"CUDA_SUCCESS", 3, true, 300, 600 * mib}, 0, 0},
		// All of it in each step, and when it is compared.
		"does not fit": {[]string{"--bytes", "1200Mi", "--pieces", "6", "--count", "3", "--kind", "managed"}, swept{"CUDA_SUCCESS", 3, true, 600, 1200 * mib}, 4 * 1200 * mib, 4 * 1200 * mib},
		"a few places": {[]string{"--bytes", "1200Mi", "--scatter", "4", "--count", "3", "--kind", "managed"}, swept{"CUDA_SUCCESS", 3, true, 600, 1200 * mib}, mib, 3*4*2*mib + 1200*mib},
	} {
		t.Run(name, func(t *testing.T) {
			m := startMachine(t, "p100-16g", "gpu.memory=1Gi", "gpu.bandwidth.host=100G", "managed.scattered=100G")
			text, err := m.outside()(t, filepath.Join(prefix(t), "bin", "gpubench"), append([]string{"sweep", "--ns", "100000"}, c.args...)...).Output()
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			var got swept
			if err != nil || json.Unmarshal(lines[len(lines)-1], &got) != nil || got != c.want {
				t.Fatalf("%v: %+v, want %+v\n%s", err, got, c.want, text)
			}
			var in uint64
			for _, tenant := range m.report(t).Tenants {
				in += tenant.GPUs[0].BytesIn
			}
			if in < c.least || in > c.most {
				t.Errorf("%d bytes came, want %d to %d", in, c.least, c.most)
			}
		})
	}
}
