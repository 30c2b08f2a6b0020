package v1alpha1

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// BlockBytes is the unit in which GPU memory is charged, 2 MiB: the driver
// takes memory from the GPU in blocks of this size and shares that are given
// in percent are rounded down to it.
const BlockBytes = 2 << 20

// ErrMemory marks every error of [ParseMemory].
var ErrMemory = errors.New("invalid amount of memory")

// Memory is an amount of GPU memory: a number of bytes, or a percentage of
// what one GPU has for tenants. The zero value means "left out".
type Memory struct {
	bytes   uint64
	percent uint8
}

// Bytes returns the amount of n bytes.
func Bytes(n uint64) Memory {
	return Memory{bytes: n}
}

// Percent returns n percent of a GPU; n beyond 100 counts as 100.
func Percent(n uint8) Memory {
	return Memory{percent: min(n, 100)}
}

// IsZero reports whether the amount was left out.
func (m Memory) IsZero() bool {
	return m == Memory{}
}

// Of returns the amount in bytes on a GPU that has capacity bytes for tenants.
// A percentage is rounded down to whole blocks; an amount left out is the
// whole capacity.
func (m Memory) Of(capacity uint64) uint64 {
	switch {
	case m.percent == 100 || m.IsZero():
		return capacity
	case m.percent > 0:
		share := capacity/100*uint64(m.percent) + capacity%100*uint64(m.percent)/100
		return share / BlockBytes * BlockBytes
	default:
		return m.bytes
	}
}

// String returns the amount in the form that [ParseMemory] reads.
func (m Memory) String() string {
	if m.percent > 0 {
		return strconv.Itoa(int(m.percent)) + "%"
	}
	return FormatBytes(m.bytes)
}

// MarshalText implements [encoding.TextMarshaler].
func (m Memory) MarshalText() ([]byte, error) {
	if m.IsZero() {
		return nil, nil
	}
	return []byte(m.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]; empty text leaves the
// amount out.
func (m *Memory) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = Memory{}
		return nil
	}
	parsed, err := ParseMemory(string(text))
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

var binarySuffixes = []struct {
	name  string
	shift uint
}{{"Ti", 40}, {"Gi", 30}, {"Mi", 20}, {"Ki", 10}}

var decimalSuffixes = map[string]uint64{"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

// FormatBytes writes n with the largest binary suffix that keeps it exact.
func FormatBytes(n uint64) string {
	for _, s := range binarySuffixes {
		if n != 0 && n%(1<<s.shift) == 0 {
			return strconv.FormatUint(n>>s.shift, 10) + s.name
		}
	}
	return strconv.FormatUint(n, 10)
}

// ParseMemory reads "4Gi", "1.5G", "800M", a plain number of bytes, or "50%"
// (whole percent, 1 to 100). Zero, negative and fractional bytes are errors,
// and so is anything beyond 64 bits.
func ParseMemory(s string) (Memory, error) {
	text := strings.TrimSpace(s)
	if number, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil || n < 1 || n > 100 {
			return Memory{}, memoryError(s, "percent must be a whole number from 1 to 100")
		}
		return Percent(uint8(n)), nil
	}
	if strings.HasPrefix(text, "-") {
		return Memory{}, memoryError(s, "it must be greater than zero")
	}
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit, ok := unitOf(text[len(digits):])
	if !ok {
		return Memory{}, memoryError(s, "use a suffix Ki, Mi, Gi, Ti, k, M, G or T, or a percentage such as 50%")
	}
	n, err := parseBytes(digits, unit)
	if err != nil {
		return Memory{}, memoryError(s, err.Error())
	}
	return Bytes(n), nil
}

func unitOf(suffix string) (uint64, bool) {
	if suffix == "" {
		return 1, true
	}
	for _, s := range binarySuffixes {
		if s.name == suffix {
			return 1 << s.shift, true
		}
	}
	unit, ok := decimalSuffixes[suffix]
	return unit, ok
}

// parseBytes multiplies a decimal number by unit without rounding. The length
// bound keeps hostile input from costing more than a few multiplications.
func parseBytes(digits string, unit uint64) (uint64, error) {
	whole, fraction, hasPoint := strings.Cut(digits, ".")
	if !allDigits(whole) || hasPoint && !allDigits(fraction) || len(digits) > 40 {
		return 0, errors.New("write a number and a suffix, such as 4Gi")
	}
	product, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, errors.New("write a number and a suffix, such as 4Gi")
	}
	product.Mul(product, new(big.Rat).SetUint64(unit))
	switch {
	case product.Sign() == 0:
		return 0, errors.New("it must be greater than zero")
	case !product.IsInt():
		return 0, errors.New("it is not a whole number of bytes")
	case !product.Num().IsUint64():
		return 0, errors.New("it is larger than any GPU")
	}
	return product.Num().Uint64(), nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func memoryError(text, reason string) error {
	return fmt.Errorf("%w %q: %s", ErrMemory, text, reason)
}
