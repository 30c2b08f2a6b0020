package users

import (
	"strconv"
	"strings"
	"testing"
)

// taker takes memory in its share, gives most of it back, and takes it again past the library.
const taker = `
import ctypes, sys
cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
def must(result):
    if result != 0:
        sys.exit("the driver answers %d" % result)
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(256 << 20)))
must(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(8 << 30)))
print("taken", flush=True)
sys.stdin.readline()
must(cuda.cuMemFree_v2(pointer))
print("given back", flush=True)
sys.stdin.readline()
try:
    cuda = ctypes.CDLL("libcuda-real.so.1")
except OSError:
    cuda = ctypes.CDLL(next(line[line.index("/"):].strip() for line in open("/proc/self/maps") if "/libcuda-real.so.1" in line))
must(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(8 << 30)))
print("taken again", flush=True)
sys.stdin.readline()
`

// What a share had when its limit was lowered, and gave back, others may have: who takes it
// again takes too much, also after the limit was lowered once more.
func TestWhatWasGivenBackIsNotTakenAgain(t *testing.T) {
	s := newServer(t)
	s.agent()
	p := s.start("u1", true, "divvy", "run", "--gpu", "0", "--memory", "10Gi", "--name", "taker", "--", "python3", "-c", taker)
	s.ok("u1", "divvy", "set", "taker", "--memory", "2Gi", "--below-used")
	if got := s.list().GPUs[0].Granted; got < 8*gib {
		t.Fatalf("granted %d while 8 GiB are in use", got)
	}
	next := func() string {
		t.Helper()
		if _, err := p.input.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		line, err := readLine(p.output)
		if err != nil {
			t.Fatalf("%q, %v: %s", line, err, p.said)
		}
		return line
	}
	next()
	s.eventually("it is given back", func() bool { return s.list().GPUs[0].Granted == 2*gib })
	other := s.hold("u2", "1Gi", "--gpu", "0", "--memory", "20Gi", "--name", "other")
	tenant, _ := find(s.list(), "u1", "taker")
	s.ok("u1", "divvy", "set", "taker", "--below-used", "--memory", strconv.FormatUint(tenant.Shares[0].Used>>20-32, 10)+"Mi")
	next()
	s.eventually("it is told", func() bool {
		for _, e := range s.list().Events {
			if e.Tenant == "taker" && strings.Contains(e.Text, "and it was granted") {
				return true
			}
		}
		return false
	})
	p.end()
	other.end()
}
