// Package pci reads the PCI tree of a host from its sysfs. It changes nothing and knows nothing of what a
// device does.
package pci

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrAddress marks text that is not the address of a PCI function.
var ErrAddress = errors.New("not a PCI address such as 0000:3b:00.0")

// Address is the address of a PCI function. A volume management device creates domains of more than 16 bits
// (10000 and above).
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// AllFunctions is the number that asks for as many virtual functions as a device can have.
const AllFunctions = -1

// ParseAddress reads the notations of sysfs (0000:3b:00.0, 10000:e1:00.0) and NVML (00000000:3B:00.0).
func ParseAddress(text string) (Address, error) {
	domain, rest, found := strings.Cut(text, ":")
	bus, rest, found2 := strings.Cut(rest, ":")
	device, function, found3 := strings.Cut(rest, ".")
	if !found || !found2 || !found3 || len(domain) < 4 || len(domain) > 8 || len(bus) != 2 || len(device) != 2 || len(function) != 1 {
		return Address{}, fmt.Errorf("read %q: %w", text, ErrAddress)
	}
	var fields [4]uint64
	for i, part := range []struct {
		text string
		bits int
	}{{domain, 32}, {bus, 8}, {device, 5}, {function, 3}} {
		value, err := strconv.ParseUint(part.text, 16, part.bits)
		if err != nil {
			return Address{}, fmt.Errorf("read %q: %w", text, ErrAddress)
		}
		fields[i] = value
	}
	return Address{uint32(fields[0]), uint8(fields[1]), uint8(fields[2]), uint8(fields[3])}, nil
}

// String returns the notation of sysfs.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}

// MarshalText makes addresses readable in JSON.
func (a Address) MarshalText() ([]byte, error) {
	return []byte(a.String()), nil
}

// UnmarshalText is the reverse of MarshalText.
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := ParseAddress(string(text))
	*a = parsed
	return err
}

// Compare orders addresses as NVML numbers GPUs.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}
