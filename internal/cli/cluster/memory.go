package cluster

import (
	"math"
	"os"
	"strconv"
	"strings"
)

// memoryLimit is where a container sees how much memory it may have.
const memoryLimit = "/sys/fs/cgroup/memory.max"

// limitMemory has garbage collected before the container's limit is reached: at four fifths of it, because the kernel
// counts more than the Go runtime does. GOMEMLIMIT says otherwise where it is set.
func limitMemory(path string, set func(int64) int64) {
	text, err := os.ReadFile(path)
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || limit <= 0 || limit > math.MaxInt64/4 {
		return // none
	}
	set(limit / 5 * 4)
}
