package users

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// ids makes a user namespace, in which others then give it more ids, and asks for a share as
// its own user and as another id of the namespace.
const ids = `
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000) != 0:
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
print("made", flush=True)
sys.stdin.readline()
kept = []
for uid in 0, 5:
    if uid != 0:
        os.setgid(uid)
        os.setuid(uid)
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/divvy/agent.sock")
    for line in sys.argv[1:]:
        s.send(line.encode())
        answer = s.makefile().readline()
    print(answer.strip(), flush=True)
    kept.append(s)
sys.stdin.readline()
`

// An id that only exists in a user's namespace is not another user, who would have limits
// and debts of their own.
func TestIdsOfANamespaceAreNoUsers(t *testing.T) {
	s := newServer(t)
	s.write("/etc/divvy/agent.yaml", head+"others: {memory: 8Gi}\n")
	s.agent()
	create := control.CreateParams{Request: v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(8 * gib)}, Layer: control.LayerEnv, Command: []string{"x"}}
	p := s.start("u6", true, "python3", "-c", ids, line(t, 1, control.MethodHello, nil), line(t, 2, control.MethodCreate, create))
	for _, name := range []string{"uid_map", "gid_map"} {
		// newuidmap(1) does that for who has ids in /etc/subuid.
		if err := os.WriteFile(filepath.Join("/proc", fmt.Sprint(p.pid()), name), []byte("0 2006 1\n1 100000 100\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(p.input, "\n"); err != nil {
		t.Fatal(err)
	}
	if own, err := readLine(p.output); err != nil || !strings.Contains(own, `"result"`) {
		t.Errorf("as itself: %q, %v: %s", own, err, p.said)
	}
	if other, err := readLine(p.output); err != nil || !strings.Contains(other, `"denied"`) || !strings.Contains(other, "ask as u6") {
		t.Errorf("as another: %q, %v: %s", other, err, p.said)
	}
	if list := s.list(); len(list.Tenants) != 1 || list.Tenants[0].User != "u6" {
		t.Errorf("there are %+v", list.Tenants)
	}
	p.end()
}
