package simgpu

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// identity is what no two GPUs of the world have in common.
type identity struct {
	uuid   [16]byte
	serial string
}

// newIdentity derives a GPU's identity from the instance's seed, so that a
// seed given twice makes the same GPUs.
func newIdentity(seed string, gpu int) identity {
	sum := sha256.Sum256(fmt.Appendf(nil, "divvy simgpu %q %d", seed, gpu))
	id := identity{uuid: [16]byte(sum[:16])}
	// Version 4, variant 1 (RFC 9562): tools check the form.
	id.uuid[6] = id.uuid[6]&0x0f | 0x40
	id.uuid[8] = id.uuid[8]&0x3f | 0x80
	number := uint64(0)
	for _, b := range sum[16:22] {
		number = number<<8 | uint64(b)
	}
	// Serial numbers have 13 digits.
	id.serial = fmt.Sprintf("1%012d", number%1_000_000_000_000)
	return id
}

// randomSeed is a seed for an instance whose user gave none.
func randomSeed() string {
	return rand.Text()
}
