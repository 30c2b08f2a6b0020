package driver

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnusable marks a driver that is there and cannot be used as it is.
var ErrUnusable = errors.New("the NVIDIA driver cannot be used")

// Why a file that has a driver's library's name is not chosen.
var (
	// errForeign marks a library for another processor. The loader passes over it, and many machines
	// have one.
	errForeign = errors.New("for another processor")
	// errDamaged marks what the loader would stop at.
	errDamaged = errors.New("damaged")
	// errOther marks a sound library that is another one.
	errOther = errors.New("another library")
	// errStub marks a library of NVIDIA's for linking only (CUDA_ERROR_STUB_LIBRARY).
	errStub = errors.New("a stub")
	// errCompat marks a copy for hosts with an older driver.
	errCompat = errors.New("a forward-compatibility copy")
	// errRelease marks a library of another release than the rest of the driver.
	errRelease = errors.New("of another release")
)

// Fault is a file with the name of one of the driver's libraries that is not used, and why.
type Fault struct {
	Path string
	// Found is what the file is, Expected what it had to be.
	Found, Expected string
	// Asked is true if LD_LIBRARY_PATH leads to it.
	Asked bool
	kind  error
}

// Error names the file, what it is and what was expected.
func (f *Fault) Error() string {
	return fmt.Sprintf("%s is %s; expected %s", f.Path, f.Found, f.Expected)
}

// Unwrap returns the kind of the fault.
func (f *Fault) Unwrap() error { return f.kind }

// Damaged reports whether programs that are led to the file cannot load it.
func (f *Fault) Damaged() bool { return errors.Is(f, errDamaged) }

// Usual reports whether the file is as it should be, and only not for this processor or not the
// library: most machines have such files.
func (f *Fault) Usual() bool { return errors.Is(f, errForeign) || errors.Is(f, errOther) }

// Compat reports whether the file is one of CUDA's forward-compatibility libraries.
func (f *Fault) Compat() bool { return errors.Is(f, errCompat) }

// Rival reports whether the file is a driver itself, which programs may be led to outside a share.
func (f *Fault) Rival() bool { return errors.Is(f, errCompat) || errors.Is(f, errRelease) }

// Told is what faults say, one after the other.
func Told(faults []*Fault) string {
	texts := make([]string, 0, len(faults))
	for _, f := range faults {
		texts = append(texts, f.Error())
	}
	return strings.Join(texts, "; ")
}
