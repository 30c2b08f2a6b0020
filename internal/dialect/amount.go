package dialect

import (
	"math/bits"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Amount is memory of one GPU: a number of bytes, or a part of what the GPU has for tenants. The zero value is all of
// it.
type Amount struct {
	bytes    uint64
	num, den uint64 // a part, 0 < num < den; den 0 for none
}

// bytesOf returns the amount of n bytes.
func bytesOf(n uint64) Amount {
	return Amount{bytes: n}
}

// partOf returns num/den of a GPU, all of it from 1 on; den is not 0.
func partOf(num, den uint64) Amount {
	if num >= den {
		return Amount{}
	}
	return Amount{num: num, den: den}
}

func (a Amount) isAll() bool {
	return a == Amount{}
}

func (a Amount) isPart() bool {
	return a.den != 0
}

// of returns the bytes that the amount is on a GPU of size bytes; a part is rounded down to whole blocks.
func (a Amount) of(size uint64) uint64 {
	switch {
	case a.isAll():
		return size
	case !a.isPart():
		return a.bytes
	}
	hi, lo := bits.Mul64(size, a.num)
	quotient, _ := bits.Div64(hi, lo, a.den) // num < den, so the quotient is below size
	return quotient / v1alpha1.BlockBytes * v1alpha1.BlockBytes
}

// atLeast reports whether a is b or more on every GPU; comparable is false where that depends on the GPU.
func (a Amount) atLeast(b Amount) (result, comparable bool) {
	switch {
	case a.isAll():
		return true, true
	case b.isAll():
		return false, true
	case a.isPart() && b.isPart():
		ahi, alo := bits.Mul64(a.num, b.den)
		bhi, blo := bits.Mul64(b.num, a.den)
		return ahi > bhi || ahi == bhi && alo >= blo, true
	case !a.isPart() && !b.isPart():
		return a.bytes >= b.bytes, true
	}
	return false, false
}
