package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// mostCPUs bounds the numbers in a list. The kernel has the same bound.
const mostCPUs = 8192

// affinityMask turns the kernel's list 0-15,32 into its mask notation: groups of 32 bits in hexadecimal, highest
// first, separated by commas. It returns "" for an invalid list.
func affinityMask(list string) string {
	var words []uint32
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return ""
		}
		to, err := strconv.ParseUint(last, 10, 16)
		if err != nil || to < from || to >= mostCPUs {
			return ""
		}
		for cpu := from; cpu <= to; cpu++ {
			for uint64(len(words)) <= cpu/32 {
				words = append(words, 0)
			}
			words[cpu/32] |= 1 << (cpu % 32)
		}
	}
	groups := make([]string, len(words))
	for i, word := range words {
		groups[len(words)-1-i] = fmt.Sprintf("%08x", word)
	}
	return strings.Join(groups, ",")
}
