package users

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/attack"
)

// open has a context on a GPU without a share, and very many files open.
const open = `
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
file = os.open("/dev/null", os.O_RDONLY)
try:
    for _ in range(int(sys.argv[1])):
        os.dup(file)
except OSError:
    pass
print("open", flush=True)
sys.stdin.read()
`

// What one user has open delays no look at others: who takes too much is noticed, and
// lists are answered. Only that user's own processes are said not to be known.
func TestVeryManyOpenFiles(t *testing.T) {
	s := newServer(t)
	s.agent()
	built := s.build(attack.Build)
	for i := range 10 {
		s.start("u6", false, "divvy", "run", "--memory", "512Mi", "--gpu", "7", "--name", "idle"+strconv.Itoa(i), "--", "sleep", "infinity")
	}
	s.eventually("idle shares are there", func() bool { return len(s.list().Tenants) == 10 })
	hostile := make([]*program, 20)
	for i := range hostile {
		hostile[i] = s.start("u6", true, "python3", "-c", open, "19900")
	}
	for range 10 {
		s.ok("u2", "divvy", "ls")
	}
	way := attack.Ways[slices.IndexFunc(attack.Ways, func(w attack.Way) bool { return !w.Prevented })].Name
	guilty := s.bypass(built, way, true)
	s.eventually("too much is told", func() bool { return told(s.list(), way) != nil })
	s.eventually("they are told to have too much open", func() bool {
		for _, e := range s.list().Events {
			if e.Kind == control.EventOutside && strings.Contains(e.Text, "u6") && strings.Contains(e.Text, "too many open files to be looked at") {
				return true
			}
		}
		return false
	})
	guilty.end()
	for _, p := range hostile {
		p.end()
	}
}
