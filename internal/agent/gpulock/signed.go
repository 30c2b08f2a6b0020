package gpulock

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Signed are the sockets that are the signs of a tenant, as links of descriptors in /proc
// name them. Anybody can make one, and pass it to a process that takes descriptors.
//
// A list of sockets has those of one network namespace, while their numbers are the
// machine's: it looks into the namespaces of this process and of the candidates. A sign
// made where none of them is any more is not found.
func Signed(tenant string, candidates []process.ID) map[string]bool {
	found, seen := map[string]bool{}, map[string]bool{}
	addSigned(found, seen, tenant, "self")
	for _, id := range candidates {
		addSigned(found, seen, tenant, strconv.Itoa(id.PID))
	}
	return found
}

// addSigned adds the signs in the network namespace of a process, if it was not seen yet.
func addSigned(found, seen map[string]bool, tenant, pid string) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%s/ns/net", pid))
	if err != nil || seen[space] {
		return
	}
	file, err := os.Open(fmt.Sprintf("/proc/%s/net/unix", pid))
	if err != nil {
		return
	}
	defer file.Close()
	seen[space] = true
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for _, kind := range []Kind{Real, Simulated} {
			if h, ok := kind.parseSign(lines.Text()); ok && h.tenant == tenant && len(fields) == 8 {
				if inode, err := strconv.ParseUint(fields[6], 10, 32); err == nil {
					found["socket:["+strconv.FormatUint(inode, 10)+"]"] = true
				}
			}
		}
	}
}
