package users

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/test/attack"
)

// stall waits for the pages of its user's shares, which a share in a list may not have yet. It names dead processes in
// them without end, and tries to stop whoever takes them out. It writes to a file how many it stopped and how many it was not
// allowed to, and ends with its input.
const stall = `
import glob, mmap, os, select, signal, struct, sys, time
count_at, slots_at, size, pid_at, expected = map(int, sys.argv[1:6])
def mine():
    return [path for path in glob.glob("/dev/shm/divvy-0/tenants/*/state") if os.stat(path).st_uid == os.getuid()]
deadline = time.monotonic() + 300
while len(mine()) < expected and time.monotonic() < deadline:
    time.sleep(0.01)
pages = [mmap.mmap(os.open(path, os.O_RDWR), 0) for path in mine()]
stopped = denied = 0
print(len(pages), flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for page in pages:
        struct.pack_into("I", page, slots_at + 40 * size + pid_at, 4000000)
        struct.pack_into("I", page, count_at, 41)
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and open("/proc/" + name + "/comm").read() == "divvy-reap\n":
                os.kill(int(name), signal.SIGSTOP)
                stopped += 1
        except PermissionError:
            denied += 1
        except OSError:
            pass
    with open("stall.new", "w") as file:
        file.write("%d %d" % (stopped, denied))
    os.rename("stall.new", "stall")
`

// A user who has the dead in their pages again and again, and stops who takes them out,
// delays nobody: whoever takes too much of a GPU is noticed, and lists are answered.
func TestNobodyStopsTheReaper(t *testing.T) {
	s := newServer(t)
	s.agent()
	built := s.build(attack.Build)
	for i := range 10 {
		s.start("u6", false, "divvy", "run", "--memory", "512Mi", "--gpu", "7", "--name", "idle"+strconv.Itoa(i), "--", "sleep", "infinity")
	}
	s.eventually("idle shares are there", func() bool { return len(s.list().Tenants) == 10 })
	hostile := s.start("u6", true, "python3", "-c", stall, strconv.Itoa(page.OffsetOfStateSlotCount), strconv.Itoa(page.OffsetOfStateSlot),
		strconv.Itoa(page.SizeOfSlot), strconv.Itoa(page.OffsetOfSlotPID), "10")
	if hostile.first != "10" {
		t.Fatalf("it finds %s pages", hostile.first)
	}
	figures := func() (stopped, denied int) {
		text, _ := os.ReadFile(filepath.Join(s.Root, "home/u6/stall"))
		_, _ = fmt.Sscanf(string(text), "%d %d", &stopped, &denied)
		return stopped, denied
	}
	s.eventually("it meets reapers", func() bool { stopped, denied := figures(); return stopped+denied > 20 })
	for range 5 {
		s.ok("u2", "divvy", "ls")
	}
	guilty := s.bypass(built, "name", true)
	s.eventually("too much is told", func() bool { return told(s.list(), "name") != nil })
	guilty.end()
	if stopped, denied := figures(); stopped != 0 {
		t.Errorf("it stopped %d reapers, and %d it could not", stopped, denied)
	}
	hostile.end()
}
