package page

import (
	"os"
	"path/filepath"
	"testing"
)

// A config page belongs to the agent, but under a user's own agent that user
// can write it as well.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte{17}, uint32(OffsetOfConfigDeviceCount), uint32(SizeOfConfig))
	f.Add([]byte{0, 0, 0, 0}, uint32(OffsetOfHeaderVersion), uint32(SizeOfConfig))
	f.Add([]byte{0xff}, uint32(0), uint32(SizeOfConfig-1))
	f.Fuzz(func(t *testing.T, bytes []byte, at, size uint32) {
		path := filepath.Join(t.TempDir(), "config")
		if err := WriteConfig(path, config(), 0o644); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(data[int(at)%len(data):], bytes)
		if err := os.WriteFile(path, data[:int(size)%(len(data)+1)], 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(path)
		if err == nil && (c.DeviceCount < 1 || c.DeviceCount > Devices || c.Header.Version != Version) {
			t.Fatalf("accepted %d GPUs, version %d", c.DeviceCount, c.Header.Version)
		}
		if (err == nil) != (UpdateConfig(path, func(*Config) {}) == nil) {
			t.Fatalf("reading says %v, changing the opposite", err)
		}
	})
}
