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

func FuzzReadBudget(f *testing.F) {
	f.Add([]byte{17}, uint32(OffsetOfConfigDeviceCount), uint32(SizeOfConfig))
	f.Add([]byte{0xff}, uint32(OffsetOfConfigDevice+OffsetOfDeviceBudget), uint32(SizeOfConfig))
	f.Add([]byte{1}, uint32(0), uint32(SizeOfConfig/2))
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
		b, err := OpenBudgets(path)
		if err != nil {
			return
		}
		defer b.Close()
		for device := range b.Devices() {
			before, err := b.Read(device)
			if err != nil {
				t.Fatal(err)
			}
			before.Tick++
			if err := b.Write(device, before); err != nil {
				t.Fatal(err)
			}
			if after, err := b.Read(device); err != nil || after != before {
				t.Fatalf("wrote %+v, read %+v, %v", before, after, err)
			}
		}
	})
}

func FuzzReadTimes(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 200}, uint32(OffsetOfGPUWorker), uint32(0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint32(OffsetOfGPUWorker+5*SizeOfWorker), uint32(0))
	f.Add([]byte{0xff}, uint32(OffsetOfGPUBucket), uint32(SizeOfGPU))
	f.Fuzz(func(t *testing.T, bytes []byte, at, cut uint32) {
		path := filepath.Join(t.TempDir(), "state")
		writeState(t, path, func(d []byte) { copy(d[SizeOfState+int(at)%(2*SizeOfGPU):], bytes) })
		r, err := OpenTimes(path, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for round := range 3 {
			for device := range 2 {
				times, err := r.Read(device)
				if err != nil && round == 0 {
					t.Fatal(err)
				}
				if err == nil && len(times.Workers) > Workers {
					t.Fatalf("%d workers", len(times.Workers))
				}
				for i := 0; err == nil && i < len(times.Workers); i++ {
					if w := times.Workers[i]; len(w.Intervals) >= Intervals || uint32(len(w.Intervals)) > w.Count {
						t.Fatalf("%d intervals of %d", len(w.Intervals), w.Count)
					}
				}
			}
			if err := os.Truncate(path, SizeOfState+int64(cut)%(2*SizeOfGPU+1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
