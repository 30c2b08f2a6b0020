package page

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// meterOf makes the pages of a tenant with two GPUs and opens them.
func meterOf(t *testing.T) (m *Meter, config, state string) {
	t.Helper()
	dir := t.TempDir()
	config, state = filepath.Join(dir, "config"), filepath.Join(dir, "state")
	if err := WriteConfig(config, Config{DeviceCount: 2}, 0o600); err != nil {
		t.Fatal(err)
	}
	writeState(t, state, func(d []byte) {
		gpu := d[SizeOfState+SizeOfGPU:]
		order.PutUint64(gpu[OffsetOfGPUAmounts:], 3<<32|5)
		order.PutUint64(gpu[OffsetOfGPUTag:], 7<<SlotBits|1)
	})
	m, err := OpenMeter(config, state, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, config, state
}

// What is measured of a device reaches the page of that device, beside what was granted.
func TestMeter(t *testing.T) {
	m, config, _ := meterOf(t)
	want := Balance{Used: 5 * Unit, Pending: 3 * Unit, Operation: 7<<SlotBits | 1}
	if b, err := m.Balance(1); err != nil || b != want {
		t.Errorf("%+v, %v, want %+v", b, err, want)
	}
	if b, err := m.Balance(0); err != nil || b != (Balance{}) {
		t.Errorf("%+v, %v of the first", b, err)
	}
	if err := m.SetOverhead(1, 100, 200); err != nil {
		t.Fatal(err)
	}
	if err := UpdateConfig(config, func(c *Config) { c.Device[1].Limit = 9 }); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(config)
	if d := c.Device[1]; err != nil || d.Overhead != 100 || d.Measured != 200 || d.Limit != 9 || c.Device[0] != (Device{}) {
		t.Errorf("%+v, %+v, %v", d, c.Device[0], err)
	}
	if bytes, err := m.Overhead(1); err != nil || bytes != 100 {
		t.Errorf("%d, %v", bytes, err)
	}
}

// Its tenant may cut either page short while it is mapped.
func TestMeterOfPagesThatAreCutShort(t *testing.T) {
	m, config, state := meterOf(t)
	if err := errors.Join(os.Truncate(state, 0), os.Truncate(config, 0)); err != nil {
		t.Fatal(err)
	}
	_, err := m.Balance(1)
	_, other := m.Overhead(1)
	for _, err := range []error{err, other, m.SetOverhead(1, 1, 1)} {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v, want ErrCorrupt", err)
		}
	}
	if _, err := OpenMeter(config, state, 2); !errors.Is(err, ErrCorrupt) {
		t.Errorf("opened: %v", err)
	}
}

func FuzzMeter(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 200}, uint32(OffsetOfGPUTag))
	f.Fuzz(func(t *testing.T, bytes []byte, at uint32) {
		m, _, state := meterOf(t)
		writeState(t, state+".other", func(d []byte) { copy(d[SizeOfState+int(at)%(2*SizeOfGPU):], bytes) })
		other, err := OpenMeter(filepath.Join(filepath.Dir(state), "config"), state+".other", 2)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for device := range m.Devices() {
			if b, err := other.Balance(device); err != nil || b.Used%Unit != 0 || b.Pending%Unit != 0 {
				t.Fatalf("%+v, %v", b, err)
			}
		}
	})
}
