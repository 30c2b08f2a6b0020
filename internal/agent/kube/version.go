package kube

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrVersion marks a version of Kubernetes that Divvy does not serve.
var ErrVersion = errors.New("unsupported version of Kubernetes")

// The first minor versions of each mode.
const (
	claimsSince = 36
	slotsSince  = 32
)

// modeFor returns the mode for a version as the API server writes it. Providers may
// append text to the minor version, as in 36+.
func modeFor(major, minor string) (Mode, error) {
	number, err := minorOf(minor)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %s.%s cannot be read", ErrVersion, major, minor)
	case major != "1":
		return "", fmt.Errorf("%w: %s.%s: use 1.36 or newer", ErrVersion, major, minor)
	case number >= claimsSince:
		return ModeClaims, nil
	case number >= slotsSince:
		return ModeSlots, nil
	}
	return "", fmt.Errorf("%w: %s.%s: use 1.36 or newer, or 1.32 to 1.35 with NRI", ErrVersion, major, minor)
}

// minorOf reads a minor version.
func minorOf(minor string) (int, error) {
	digits := minor
	if end := strings.IndexFunc(minor, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = minor[:end]
	}
	return strconv.Atoi(digits)
}
