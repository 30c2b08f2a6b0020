package v1alpha1

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// BlockBytes is the unit in which GPU memory is charged, 2 MiB: the driver
// takes memory from the GPU in blocks of this size and shares that are given
// in percent are rounded down to it.
const BlockBytes = 2 << 20

// ErrMemory marks every error of [ParseMemory].
var ErrMemory = errors.New("invalid amount of memory")

// Part is Of parts out of In equal ones, 0 < Of < In.
type Part struct {
	Of uint64 `json:"of"`
	In uint64 `json:"in"`
}

// Memory is an amount of GPU memory: a number of bytes, or a part of what one
// GPU has for tenants. The zero value means "left out", which is all of it.
type Memory struct {
	bytes uint64
	part  Part // In is 0 for an amount in bytes; Of = In is all of the GPU, said in percent
}

// Bytes returns the amount of n bytes.
func Bytes(n uint64) Memory {
	return Memory{bytes: n}
}

// Percent returns n percent of a GPU; n beyond 100 counts as 100.
func Percent(n uint8) Memory {
	if n == 0 {
		return Memory{}
	}
	return Memory{part: Part{Of: uint64(min(n, 100)), In: 100}}
}

// PartOf returns of/in of a GPU, and the zero value, all of it, from 1 on. In is
// not 0.
func PartOf(of, in uint64) Memory {
	if of >= in {
		return Memory{}
	}
	return Memory{part: Part{Of: of, In: in}}
}

// IsZero reports whether the amount was left out.
func (m Memory) IsZero() bool {
	return m == Memory{}
}

// IsAll reports whether the amount is all that any GPU has, said or left out.
func (m Memory) IsAll() bool {
	return m.bytes == 0 && m.part.Of == m.part.In
}

// InBytes returns an amount that was given in bytes, or 0.
func (m Memory) InBytes() uint64 {
	return m.bytes
}

// Part returns the amount as a part of a GPU below 1; ok is false where it is not.
func (m Memory) Part() (part Part, ok bool) {
	if m.IsAll() || m.part.In == 0 {
		return Part{}, false
	}
	return m.part, true
}

// Of returns the amount in bytes on a GPU that has capacity bytes for tenants.
// A part is rounded down to whole blocks; an amount left out is the whole
// capacity.
func (m Memory) Of(capacity uint64) uint64 {
	part, ok := m.Part()
	switch {
	case m.IsAll():
		return capacity
	case !ok:
		return m.bytes
	}
	hi, lo := bits.Mul64(capacity, part.Of)
	share, _ := bits.Div64(hi, lo, part.In) // Of < In, so that the result is below capacity
	return share / BlockBytes * BlockBytes
}

// AtLeast reports whether m is other or more on every GPU; comparable is false
// where that depends on the GPU.
func (m Memory) AtLeast(other Memory) (result, comparable bool) {
	a, isPart := m.Part()
	b, otherIsPart := other.Part()
	switch {
	case m.IsAll():
		return true, true
	case other.IsAll():
		return false, true
	case isPart && otherIsPart:
		ahi, alo := bits.Mul64(a.Of, b.In)
		bhi, blo := bits.Mul64(b.Of, a.In)
		return ahi > bhi || ahi == bhi && alo >= blo, true
	case !isPart && !otherIsPart:
		return m.bytes >= other.bytes, true
	}
	return false, false
}

// String returns the amount in the form that [ParseMemory] reads; a part that is
// no whole percentage, which nobody can write there, as 1/3.
func (m Memory) String() string {
	switch m.part.In {
	case 0:
		return FormatBytes(m.bytes)
	case 100:
		return strconv.FormatUint(m.part.Of, 10) + "%"
	}
	return fmt.Sprintf("%d/%d", m.part.Of, m.part.In)
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

// RoundBytes writes n for people, in the largest binary suffix of which there is one, with one decimal at most.
func RoundBytes(n uint64) string {
	for _, s := range binarySuffixes {
		if v := float64(n) / float64(uint64(1)<<s.shift); v >= 1 {
			return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + s.name
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
