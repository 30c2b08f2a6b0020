package vmtest

import (
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// virtual are the virtual functions that a physical one can have.
type virtual struct {
	total, now int
	// probed is whether drivers take them as they appear.
	probed bool
}

// String tells them behind what is told of their physical function.
func (v *virtual) String() string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(" virtual=%d probed=%t", v.now, v.probed)
}

// state is what a file about them tells.
func (v *virtual) state(path, file string) (string, error) {
	switch {
	case file == "sriov_numvfs":
		return strconv.Itoa(v.now), nil
	case file == "sriov_drivers_autoprobe" && v.probed:
		return "1", nil
	case file == "sriov_drivers_autoprobe":
		return "0", nil
	}
	return "", fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
}

// Virtual is the nth virtual function of a physical one, counted from 1.
func Virtual(at pci.Address, n int) pci.Address {
	number := int(at.Device)<<3 + int(at.Function) + n
	at.Bus += uint8(number >> 8) //nolint:gosec // the models have few
	at.Device, at.Function = uint8(number>>3&31), uint8(number&7)
	return at
}

// virtualWrite does what the kernel does for a write to a file about virtual functions.
func (k *Kernel) virtualWrite(at pci.Address, f *function, file, value string) error {
	v := f.virtual
	number, err := strconv.Atoi(value)
	switch {
	case err != nil:
		return syscall.EINVAL
	case file == "sriov_drivers_autoprobe":
		v.probed = number != 0
		return nil
	case file != "sriov_numvfs":
		return syscall.ENOENT
	case number < 0 || number > v.total:
		return syscall.ERANGE
	case number == v.now:
		return nil
	case f.driver == "":
		return syscall.ENOENT
	case number > 0 && v.now > 0:
		return syscall.EBUSY
	}
	for n := 1; n <= max(number, v.now); n++ {
		if number == 0 {
			delete(k.functions, Virtual(at, n))
			continue
		}
		one := &function{home: f.home, of: v}
		if v.probed {
			one.driver = one.home
		}
		k.functions[Virtual(at, n)] = one
	}
	v.now = number
	return nil
}
